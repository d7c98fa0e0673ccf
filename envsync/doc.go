// Package envsync makes files and environment on hosts equal to what is
// wanted.
//
// A file becomes a Blob, named by the SHA-256 of its content, and lies on a
// host as ~/.plx/blobs/<sum>. Having and Settle look after blobs there, and
// Here tells what the host is:
//
//	program, err := envsync.FileBlob("./train")
//	...
//	text, err := envsync.Here() // on the host
//	...
//	facts, err := envsync.ReadFacts(text)
//
// Environment checks what the user wants set for the program.
//
// # What it refuses
//
// It knows no task and no training, starts no program of the user's, and
// never changes a blob in place (a running program is never overwritten).
package envsync
