// A button that copies the commands of a block, without the remarks between them.
(() => {
  "use strict";
  if (!navigator.clipboard) return; // as on a page without TLS: they can be marked with the pointer

  function offer() {
    for (const block of document.querySelectorAll("pre[data-copy]")) {
      if (block.previousElementSibling?.className === "copy") continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        const lines = block.textContent.split("\n").filter((line) => line.trim() && !line.startsWith("#"));
        await navigator.clipboard.writeText(`${lines.join("\n")}\n`);
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 2000);
      });
      block.before(button);
    }
  }

  document.addEventListener("DOMContentLoaded", offer);
  document.addEventListener("laggard:swapped", offer);
})();
