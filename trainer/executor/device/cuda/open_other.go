//go:build !linux || android || faketime || nodlopen || !(amd64 || arm64)

package cuda

import (
	"errors"

	"github.com/plx-run/plx/trainer/executor/device"
)

// Open returns an error: this build cannot load NVIDIA's driver.
func Open(int) (device.GPU, error) {
	return nil, errors.New("open NVIDIA's driver: this build loads no library")
}
