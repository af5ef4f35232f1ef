"""Write-ahead journal and snapshots: their entries, their formats, the files."""
