//go:build linux

package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Find searches where tasks will search: first in the folders of --path, then
// in the login's PATH, or in the user's PATH if that is set. A program that
// cannot be read counts as missing.
func TestFind(t *testing.T) {
	home := t.TempDir()
	for name, content := range map[string]string{"marked/train": "\x7fELF" + cluster.TrainerMark, "plain/train": "\x7fELF", "plain/other": "#!/bin/sh"} {
		path := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(filepath.Join(home, "marked/pipe"), 0o755), os.WriteFile(filepath.Join(home, "marked/data"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	marked, plain := filepath.Join(home, "marked"), filepath.Join(home, "plain")
	is, other := protocol.Found{There: true, Trainer: true}, protocol.Found{There: true}
	for name, c := range map[string]struct {
		path string
		find protocol.Find
		want protocol.Found
	}{
		"of the login":           {marked + ":" + plain, protocol.Find{Name: "train"}, is},
		"the first of the login": {plain + ":" + marked, protocol.Find{Name: "train"}, other},
		"no trainer":             {plain, protocol.Find{Name: "other"}, other},
		"the user's folder":      {plain, protocol.Find{Name: "train", Path: protocol.Raw(marked)}, is},
		"a relative folder":      {plain, protocol.Find{Name: "train", Path: "marked"}, other},
		"the user's PATH":        {plain, protocol.Find{Name: "train", Env: []protocol.Raw{protocol.Raw("PATH=" + marked)}}, is},
		"not on the user's PATH": {marked, protocol.Find{Name: "train", Env: []protocol.Raw{"PATH=/no/such"}}, protocol.Found{}},
		"missing":                {marked, protocol.Find{Name: "absent"}, protocol.Found{}},
		"a pipe":                 {marked, protocol.Find{Name: "pipe"}, protocol.Found{}},
		"a file that cannot run": {marked, protocol.Find{Name: "data"}, protocol.Found{}},
	} {
		if got := Find(t.Context(), []string{"PATH=" + c.path}, c.find); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Find(over, []string{"PATH=" + marked}, protocol.Find{Name: "train"}); got.There {
		t.Errorf("a file that takes too long: %+v", got)
	}
}
