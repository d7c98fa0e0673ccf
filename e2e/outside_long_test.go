//go:build long

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// Each program trains alone and on two hosts, with the same bits.
func TestProgramsOfUsers(t *testing.T) {
	bin := buildPrograms(t, "cnn", "words", "exercises", "monitored")
	for _, p := range programs[1:] {
		out, log := alone(t, bin+p.name, p.flags...)
		if !strings.HasPrefix(out, p.want) || strings.Contains(log, "warn") {
			t.Errorf("%s %q prints\n%s%s\nwant %q and no warning", p.name, p.flags, out, log, p.want)
		}
		if on := launched(t, bin+p.name, p.flags...); on != out {
			t.Errorf("%s %q on two hosts prints\n%salone\n%s", p.name, p.flags, on, out)
		}
	}
}

// If a flag or a hook ends a training early, the program continues after its
// training loop. A stopped run that resumes ends with the same bits as an
// uninterrupted one.
func TestClassifierOfAUser(t *testing.T) {
	program := buildPrograms(t, "csv") + "csv"
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	flags := append([]string{"--data", table(t), "--out", out}, exact...)
	whole, _ := alone(t, program, flags...)
	if on := launched(t, program, flags...); on != whole {
		t.Errorf("on two hosts\n%salone\n%s", on, whole)
	}
	flags = append(flags, "--ckpt-dir", dir)
	first, _ := alone(t, program, append(flags[:len(flags):len(flags)], "--stop-at-step=7")...)
	if written := string(read(t, out)); !strings.HasPrefix(first, "7 steps, accuracy ") || !strings.HasPrefix(first, written) {
		t.Errorf("stopped: the file has %q, the output %q", written, first)
	}
	second, log := alone(t, program, flags...)
	if second != whole || !strings.Contains(log, "going on after step 7,") {
		t.Errorf("resumed\n%swithout a stop\n%s%s", second, whole, log)
	}
}
