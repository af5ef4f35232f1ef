"""Write-ahead journal and snapshots.

`entries` has the log entries, `journal_codec` and `snapshot_codec` the formats on disk, `journal` and
`snapshots` the files.
"""
