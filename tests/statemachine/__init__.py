"""Any order of the storage's own acts, with answers that get lost: no job is ever lost or doubled."""
