//go:build !linux || android || faketime || nodlopen || !(amd64 || arm64)

package blas

import (
	"errors"

	"gorgonia.org/gorgonia"
)

// loadable is true if this build can load a library at run time.
const loadable = false

// open always returns an error, because this build cannot load libraries.
func open(family, int) (gorgonia.BLAS, Library, error) {
	return nil, Library{}, errors.New("this build of the program loads no library at run time (it needs linux on amd64 or arm64, and no -tags nodlopen)")
}
