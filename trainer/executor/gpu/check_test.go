package gpu

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/device"
)

// check refuses a GPU or a driver that is too old. The error says what the GPU
// has and what plx needs.
func TestTooOldGPUIsRefused(t *testing.T) {
	for _, c := range []struct {
		driver, major, minor int
		want                 string
	}{
		{9000, 7, 0, ""},
		{12040, 12, 1, ""},
		{8000, 7, 0, "CUDA 8.0, and plx's kernels need one for CUDA 9.0"},
		{8990, 7, 0, "need one for CUDA 9.0"},
		{12040, 6, 1, "old has compute capability 6.1, and plx's kernels need 7.0"},
		{12040, 5, 2, "5.2"},
	} {
		err := check(device.Info{Name: "old", Driver: c.driver, Major: c.major, Minor: c.minor})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
