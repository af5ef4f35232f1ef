/* SPDX-License-Identifier: Apache-2.0 */
#include "images.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

#define MOST_PATTERNS 4096
#define LONGEST_LIST 262144

static char list[LONGEST_LIST];
static const char *patterns[MOST_PATTERNS];
static unsigned int pattern_count;

int allow_read(const char *path)
{
    long length = read_text(path, list, sizeof list);
    if (length < 0 || length + 1 == LONGEST_LIST)
        return -1;
    pattern_count = 0;
    for (char *line = list; line && pattern_count < MOST_PATTERNS;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        line += strspn(line, " \t");
        line[strcspn(line, " \t\r#")] = 0;
        if (*line)
            patterns[pattern_count++] = line;
        line = next;
    }
    return pattern_count ? 0 : -1;
}

static int is_allowed(const char *name)
{
    for (unsigned int i = 0; i < pattern_count; i++)
        if (matches(patterns[i], name))
            return 1;
    return 0;
}

/* START-END PERMISSIONS OFFSET DEVICE INODE PATH; cuts at `line`'s end. */
static int parse(const char *line, uintptr_t address, struct mapping *found)
{
    found->start = take_number(&line, 16);
    line += *line == '-';
    found->end = take_number(&line, 16);
    if (address < found->start || address >= found->end)
        return 0;
    line = strchr(line + 1, ' '); /* past the permissions */
    if (!line)
        return 0;
    line++;
    found->offset = take_number(&line, 16);
    line = strchr(line + 1, ' '); /* past the device */
    if (!line)
        return 0;
    line++;
    found->inode = take_number(&line, 10);
    line = strchr(line, '/');
    if (!line || !found->inode)
        return 0;
    found->path[0] = 0;
    append(found->path, sizeof found->path, line);
    return 1;
}

int find_mapping(uintptr_t address, struct mapping *found)
{
    static char buffer[8192]; /* the callers hold a lock */
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t held = 0;
    long got;
    int is_found = 0;
    while (!is_found && (got = read(fd, buffer + held, sizeof buffer - 1 - held)) > 0) {
        held += (size_t)got;
        buffer[held] = 0;
        char *line = buffer, *end;
        while (!is_found && (end = strchr(line, '\n'))) {
            *end = 0;
            is_found = parse(line, address, found);
            line = end + 1;
        }
        held -= (size_t)(line - buffer);
        if (held + 1 == sizeof buffer)
            held = 0; /* no line is that long */
        memmove(buffer, line, held);
    }
    close(fd);
    return is_found;
}

/* A whole file, to look at; NULL when it is no ELF file of this machine's kind. */
static const uint8_t *map_elf(const char *path, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    struct stat found;
    void *whole = MAP_FAILED;
    if (!fstat(fd, &found) && S_ISREG(found.st_mode) && found.st_size >= (long)sizeof(Elf64_Ehdr)) {
        *size = (size_t)found.st_size;
        whole = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    if (whole == MAP_FAILED)
        return NULL;
    const Elf64_Ehdr *head = whole;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_ident[EI_CLASS] != ELFCLASS64 ||
        head->e_phentsize != sizeof(Elf64_Phdr) || head->e_phoff > *size ||
        head->e_phnum > (*size - head->e_phoff) / sizeof(Elf64_Phdr)) {
        munmap(whole, *size);
        return NULL;
    }
    return whole;
}

static const Elf64_Phdr *segments(const uint8_t *elf)
{
    return (const void *)(elf + ((const Elf64_Ehdr *)elf)->e_phoff);
}

static void take_build_id(const uint8_t *elf, size_t size, struct module *module)
{
    for (unsigned int i = 0; i < ((const Elf64_Ehdr *)elf)->e_phnum; i++) {
        const Elf64_Phdr *segment = segments(elf) + i;
        if (segment->p_type != PT_NOTE || segment->p_offset > size || segment->p_filesz > size - segment->p_offset)
            continue;
        uint64_t at = segment->p_offset, end = at + segment->p_filesz;
        while (end - at >= sizeof(Elf64_Nhdr)) {
            const Elf64_Nhdr *note = (const void *)(elf + at);
            uint64_t name = (note->n_namesz + 3ull) & ~3ull, content = (note->n_descsz + 3ull) & ~3ull;
            at += sizeof *note;
            if (end - at < name || end - at - name < content)
                break;
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(elf + at, "GNU", 4) &&
                note->n_descsz <= sizeof module->build_id) {
                memcpy(module->build_id, elf + at + name, note->n_descsz);
                module->build_id_bytes = note->n_descsz;
                return;
            }
            at += name + content;
        }
    }
}

void describe(const struct mapping *mapping, struct module *module)
{
    memset(module, 0, sizeof *module);
    module->inode = mapping->inode;
    module->path_bytes = (uint32_t)strlen(mapping->path);
    memcpy(module->path, mapping->path, module->path_bytes);
    size_t size;
    const uint8_t *elf = map_elf(mapping->path, &size);
    if (!elf)
        return;
    take_build_id(elf, size, module);
    munmap((void *)elf, size);
}

/* Where in the file the code at a virtual address is; 0 when no segment has it. */
static uint64_t offset_of(const uint8_t *elf, uint64_t address)
{
    for (unsigned int i = 0; i < ((const Elf64_Ehdr *)elf)->e_phnum; i++) {
        const Elf64_Phdr *segment = segments(elf) + i;
        if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
            address - segment->p_vaddr < segment->p_filesz)
            return address - segment->p_vaddr + segment->p_offset;
    }
    return 0;
}

static int take_symbols(const uint8_t *elf, size_t size, const Elf64_Shdr *symbols, const Elf64_Shdr *names,
                        void (*take)(uint64_t, void *), void *with)
{
    if (symbols->sh_offset > size || symbols->sh_size > size - symbols->sh_offset || names->sh_offset > size ||
        names->sh_size > size - names->sh_offset || !names->sh_size ||
        elf[names->sh_offset + names->sh_size - 1])
        return -1;
    const Elf64_Sym *symbol = (const void *)(elf + symbols->sh_offset);
    for (uint64_t i = 0; i < symbols->sh_size / sizeof *symbol; i++, symbol++) {
        int type = ELF64_ST_TYPE(symbol->st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || !symbol->st_value || symbol->st_name >= names->sh_size)
            continue;
        if (is_allowed((const char *)elf + names->sh_offset + symbol->st_name)) {
            uint64_t offset = offset_of(elf, symbol->st_value);
            if (offset)
                take(offset, with);
        }
    }
    return 0;
}

int for_allowed(const char *path, void (*take)(uint64_t, void *), void *with)
{
    size_t size;
    const uint8_t *elf = map_elf(path, &size);
    if (!elf)
        return -1;
    const Elf64_Ehdr *head = (const void *)elf;
    int result = -1;
    if (head->e_shentsize == sizeof(Elf64_Shdr) && head->e_shoff <= size &&
        head->e_shnum <= (size - head->e_shoff) / sizeof(Elf64_Shdr)) {
        const Elf64_Shdr *sections = (const void *)(elf + head->e_shoff);
        for (unsigned int i = 0; i < head->e_shnum; i++)
            if ((sections[i].sh_type == SHT_SYMTAB || sections[i].sh_type == SHT_DYNSYM) &&
                sections[i].sh_link < head->e_shnum &&
                !take_symbols(elf, size, sections + i, sections + sections[i].sh_link, take, with))
                result = 0;
    }
    munmap((void *)elf, size);
    return result;
}
