//go:build linux

package sockets

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Only hardware has a speed.
func TestSpeed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"eth0/device/vendor": "", "eth0/speed": "25000\n",
		"down/device/vendor": "", "down/speed": "-1\n", "odd/device/vendor": "", "odd/speed": "?\n", "mute/device/vendor": "", "docker0/speed": "10000\n"} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{"eth0": 25000, "down": 0, "odd": 0, "mute": 0, "docker0": 0, "none": 0} {
		if got := speed(root, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
