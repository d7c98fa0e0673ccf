// Package digest computes the size and SHA-256 of a file. plx names and
// verifies files by their SHA-256:
//
//	size, sum, err := digest.Of(file)
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// Of reads r to its end. It returns the number of bytes and their SHA-256 in
// lower-case hexadecimal. If reading fails, sum is empty.
func Of(r io.Reader) (size int64, sum string, err error) {
	hash := sha256.New()
	if size, err = io.Copy(hash, r); err != nil {
		return size, "", err
	}
	return size, hex.EncodeToString(hash.Sum(nil)), nil
}
