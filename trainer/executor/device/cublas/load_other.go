//go:build !linux || android || faketime || nodlopen || !(amd64 || arm64)

package cublas

import "errors"

func load(string) (calls, error) {
	return nil, errors.New("this build cannot load libraries (it needs linux on amd64 or arm64, and no -tags nodlopen)")
}

// call is never reached, because load always fails in this build.
func call(uintptr, []uintptr) int { return 1 }
