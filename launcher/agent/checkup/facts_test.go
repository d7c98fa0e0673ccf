//go:build linux

package checkup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// The reported limits are those of the login, not the limits that this process
// has raised for itself.
func TestFactsHaveLimitsOfLogin(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.Mkdir(filepath.Join(home, ".plx"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := facts(t.Context())
	soft, err := exec.Command("sh", "-c", "ulimit -Sn; ulimit -Hn; id -un; uname -m").Output()
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Fields(string(soft))
	if f.OS != "Linux" || f.Arch != said[3] || f.User != said[2] || f.UID != os.Getuid() || f.OpenFiles != limitOf(said[0]+" "+said[1]) || f.OpenFiles.Soft <= 0 || f.Processes.Hard <= 0 {
		t.Errorf("%+v, want %q", f, said)
	}
	if f.Home.Path != home+"/.plx" || f.Home.Missing || f.Home.Unwritable != "" || f.Home.FreeKiB <= 0 || f.Tmp.Path != "/tmp" || f.Tmp.Mount == "" || f.Shm.Path != "/dev/shm" || f.Shm.SizeKiB < f.Shm.FreeKiB {
		t.Errorf("%+v", f)
	}
	if left, err := os.ReadDir(filepath.Join(home, ".plx")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestLimitOf(t *testing.T) {
	for text, want := range map[string]protocol.Limit{
		"   1024   524288   files": {Soft: 1024, Hard: 524288}, " unlimited unlimited processes": {Soft: protocol.Unlimited, Hard: protocol.Unlimited},
		"": {Soft: protocol.NotKnown, Hard: protocol.NotKnown}, " x 7": {Soft: protocol.NotKnown, Hard: 7},
	} {
		if got := limitOf(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
