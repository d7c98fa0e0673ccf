//go:build !linux || android || faketime || nodlopen || !(amd64 || arm64)

package cuda

import (
	"errors"

	"github.com/plx-run/plx/trainer/executor/device"
)

// Open returns an error, because this build cannot load NVIDIA's driver.
func Open(int) (device.GPU, error) {
	return nil, errors.New("open NVIDIA's driver: this build cannot load libraries (it needs linux on amd64 or arm64, and no -tags nodlopen)")
}
