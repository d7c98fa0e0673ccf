// Package envsync provides files and environment variables for programs on
// remote hosts.
//
// A file becomes a Blob, which is named by the SHA-256 of its content and
// stored on a host as ~/.plx/blobs/<sum>. CachedBlobs checks the blobs on a
// host, StoreBlob adds a blob, and DescribeHost describes the host:
//
//	program, err := envsync.FileBlob("./train")
//	...
//	text, err := envsync.DescribeHost() // on the host
//	...
//	facts, err := envsync.ReadFacts(text)
//
// Environment checks the environment variables that the user wants to set for
// the program.
//
// # What it refuses
//
// The package knows nothing of tasks or training and starts no program of the
// user. It never changes a blob in place, so a running program is never
// overwritten.
package envsync
