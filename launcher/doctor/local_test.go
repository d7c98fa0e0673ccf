package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

func TestJudgeHere(t *testing.T) {
	for _, c := range []struct {
		hosts int
		files int64
		home  error
		want  string
	}{
		{10, 104, nil, ""},
		{10, 103, nil, "error limits: plx may open 103 files, and needs about 104 for so many hosts"},
		{10, protocol.NotKnown, nil, ""},
		{1, protocol.Unlimited, errors.New("read-only file system"), "error home: read-only file system"},
	} {
		if got := words(judgeThisMachine(c.hosts, c.files, c.home)); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestWritable(t *testing.T) {
	home := t.TempDir()
	if err := writable(home); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(home + "/.*"); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if err := os.WriteFile(filepath.Join(home, ".plx"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writable(home); err == nil {
		t.Error("a file in the way of ~/.plx was not noticed")
	}
	if err := writable(""); err == nil {
		t.Error("no HOME")
	}
	if n := openFileLimit(); n < 3 {
		t.Errorf("%d open files", n)
	}
}
