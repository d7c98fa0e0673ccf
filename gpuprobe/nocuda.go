//go:build !(cuda && linux)

package gpuprobe

import "errors"

// Local returns the devices that the CUDA driver of this machine reports. This
// build lacks the tag cuda, so Local always returns an error.
func Local() ([]GPU, error) {
	return nil, errors.New("read the local CUDA devices: this plx was built without -tags cuda")
}
