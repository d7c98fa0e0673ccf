// Package tree brings the content of a folder to hosts.
//
// A [Manifest] lists what a folder holds: paths, permissions, links, and the
// SHA-256 of each file. A [Store] keeps contents on a host, each under its
// SHA-256 and once, whatever files of whatever folders have it. Only contents
// that a host lacks travel, and of a large file only the [Chunks] that are in no
// other content of the host:
//
//	folder, err := tree.Scan(ctx, ".", tree.Options{Cache: cache})
//	...
//	err = tree.Send(ctx, []tree.Target{{Name: "gpu01", Host: host}}, folder, nil)
//
// On the host, Serve is the other side of Send, and Build makes a folder of
// its own from a manifest and the store:
//
//	err := store.Serve(ctx, os.Stdin, os.Stdout, nil)
//	...
//	err = store.Build(ctx, id, "/home/u/.plx/jobs/j/h/work", store.Options{})
//
// # What it refuses
//
// It follows no link, and sends none that leads out of the folder unless
// Options.KeepLinks asks for it. It makes no hard link, so nothing that a program
// writes in a built folder reaches the store. It allocates no memory for a length
// from a stream before the bytes are there.
package tree
