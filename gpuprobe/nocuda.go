//go:build !(cuda && linux)

package gpuprobe

import "errors"

// Local returns the devices of this machine as the CUDA driver tells them, in
// a build with the tag cuda. This is a build without it, and an error that
// says so.
func Local() ([]GPU, error) {
	return nil, errors.New("read the local CUDA devices: this plx was built without -tags cuda")
}
