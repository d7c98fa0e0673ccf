// Package tree copies a folder to hosts and sends only what they lack.
//
// A [Manifest] lists what a folder holds: paths, permissions, symbolic links,
// and the SHA-256 of each file. A content store (package store) on each host
// keeps file contents under their SHA-256. Files with equal content, in any
// folder, are stored once. Send transfers only contents that a host lacks, and
// of a large file only the [Chunks] that occur in no stored content:
//
//	folder, err := tree.Scan(ctx, ".", tree.Options{Cache: cache})
//	...
//	err = tree.Send(ctx, []tree.Target{{Name: "gpu01", Host: host}}, folder, nil)
//
// On the host, Serve is the counterpart of Send, and Build creates a folder
// from a manifest and the store:
//
//	err := store.Serve(ctx, os.Stdin, os.Stdout, nil)
//	...
//	err = store.Build(ctx, id, "/home/u/.plx/jobs/j/h/work", store.Options{})
//
// # What it refuses
//
// The package follows no symbolic link. It sends no link that points out of
// the folder unless Options.KeepLinks is set. It creates no hard links, so a
// program that writes to a built folder cannot change the store. It allocates
// no memory for a length field from a stream until that number of bytes has
// arrived.
package tree
