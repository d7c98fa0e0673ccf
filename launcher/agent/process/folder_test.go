//go:build linux

package process

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// ReadFolder describes what is wrong with a folder.
func TestLookReportsFaultsOfFolder(t *testing.T) {
	if f := folder(filepath.Join(t.TempDir(), "none")); !f.Missing || f.FreeKiB != protocol.NotKnown || f.SizeKiB != protocol.NotKnown {
		t.Errorf("%+v", f)
	}
	mount := func(options string, flags uintptr) string {
		dir := t.TempDir()
		if err := syscall.Mount("plx-test", dir, "tmpfs", flags, options); err != nil {
			t.Skipf("needs root, to mount a file system: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	if dir := mount("size=64k", syscall.MS_NOEXEC); true {
		if f := folder(dir); !f.NoExec || f.Mount != dir || f.SizeKiB != 64 || f.FreeKiB != 64 || f.Unwritable != "" || f.FreeInodes <= 0 {
			t.Errorf("%+v", f)
		}
		fill, err := os.Create(filepath.Join(dir, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fill.Write(make([]byte, 1<<20)) // writes until the file system is full
		if err := fill.Close(); err != nil {
			t.Fatal(err)
		}
		if f := folder(dir); f.Unwritable != "no space left on device" || f.SizeKiB != 64 || f.FreeKiB != 0 {
			t.Errorf("full: %+v", f)
		}
	}
	if f := folder(mount("", syscall.MS_RDONLY)); f.Unwritable != "read-only file system" {
		t.Errorf("read-only: %+v", f)
	}
	if f := folder(mount("size=0", 0)); f.SizeKiB != protocol.NotKnown || f.FreeKiB != protocol.NotKnown || f.Unwritable != "" {
		t.Errorf("without a limit: %+v", f)
	}
}
