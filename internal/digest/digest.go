// Package digest hashes files, as plx names and verifies them:
//
//	size, sum, err := digest.Of(file)
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// Of reads r to its end, and returns how many bytes it had and their SHA-256 in lower-case hexadecimal.
// After an error the sum is empty.
func Of(r io.Reader) (size int64, sum string, err error) {
	hash := sha256.New()
	if size, err = io.Copy(hash, r); err != nil {
		return size, "", err
	}
	return size, hex.EncodeToString(hash.Sum(nil)), nil
}
