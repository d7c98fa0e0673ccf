package protocol

import "time"

// FetchRequest is the input of "agent fetch", as a line of JSON. The output is the bytes
// of the file, or a HostCheckpoint per line of JSON.
type FetchRequest struct {
	Name string `json:"name"`           // of the checkpoints, under ~/.plx/ckpt
	File string `json:"file,omitempty"` // path below that, with slashes; empty: list the checkpoints
}

// HostCheckpoint is what one host has of a checkpoint: a folder with a manifest.
type HostCheckpoint struct {
	Folder string           `json:"folder"`           // below ~/.plx/ckpt/<name>, with slashes
	Made   time.Time        `json:"made,omitzero"`    // from the manifest
	Files  []CheckpointFile `json:"files,omitempty"`  // those of the manifest; the manifest itself is the last
	Damage string           `json:"damage,omitempty"` // why the manifest is unreadable; empty: it is not
}

// CheckpointFile is one file of a checkpoint.
type CheckpointFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`           // bytes
	Sum  string `json:"sum"`            // SHA-256, hexadecimal
	Here bool   `json:"here,omitempty"` // the host has a file of that name and size
}
