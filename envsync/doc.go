// Package envsync makes files and environment on hosts equal to what is
// wanted.
//
// A file becomes a Blob, named by the SHA-256 of its content, and lies on a
// host as ~/.plx/blobs/<sum>. Sync brings blobs to many hosts at once and
// sends each of them once per file system; what is there already is not sent
// again:
//
//	facts, err := envsync.Inspect(ctx, client)
//	...
//	program, err := envsync.FileBlob("./train")
//	...
//	err = envsync.Sync(ctx, []envsync.Target{
//		{Name: "gpu01", Host: client, FileSystem: facts.FileSystem},
//	}, []envsync.Blob{program}, nil)
//
// Environment checks what the user wants set for the program.
//
// # What it refuses
//
// It knows no task and no training, starts no program of the user's, and
// never changes a blob in place (a running program is never overwritten).
package envsync
