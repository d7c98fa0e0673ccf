//go:build long

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestKilledLaunch kills launches with SIGKILL, each as soon as it has created
// a certain file, folder or process on this machine. plx prune and the next
// launch remove these, and keep what belongs to a running launch.
func TestKilledLaunch(t *testing.T) {
	t.Parallel()
	b := local(t)
	tmp, bin := t.TempDir(), t.TempDir()
	path := "PATH=" + bin + ":" + os.Getenv("PATH")
	b.env = append(b.env, "TMPDIR="+tmp, path)
	started := filepath.Join(bin, "started")
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	writeInto(t, filepath.Join(bin, "go"), "#!/bin/sh\n[ \"$1\" = build ] || exec "+tool+" \"$@\"\necho $$ >"+started+"\nexec sleep 1000\n", 0o755)
	writeInto(t, filepath.Join(b.home, ".ssh", "config"), "Match host slow exec \"sleep 8\"\nHostName none\n", 0o600)
	pkg := t.TempDir()
	writeInto(t, filepath.Join(pkg, "go.mod"), "module x\n\ngo 1.26\n", 0o600)
	writeInto(t, filepath.Join(pkg, "main.go"), "package main\n\nfunc main() {}\n", 0o600)
	launching := filepath.Join(b.home, ".plx", "launching")
	left := func() (paths []string) {
		for _, pattern := range []string{tmp + "/*", tmp + "/.*", launching + "/*", launching + "/.*"} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, found...)
		}
		return paths
	}
	holds := func(dir string) func() bool {
		return func() bool {
			entries, err := os.ReadDir(dir)
			return err == nil && len(entries) > 0
		}
	}
	silent := []string{"launch", "--host", "h1", "--via", "sh -c 'exec cat >/dev/null' {host}", "--start-timeout", "1h", "--name", "silent", "sleep", "1000"}
	tidy := map[string]func(){
		"plx prune":       func() { b.want(0, "prune", "--older", "0s") },
		"the next launch": func() { b.want(0, "launch", "--local", "1x1", "true") },
	}
	for _, c := range []struct {
		name string
		args []string
		made func() bool
	}{
		{"record", silent, holds(launching)},
		{"configuration", []string{"launch", "--host", "slow", "true"}, holds(tmp)},
		{"build", []string{"launch", "--ps", "none", "--local", "1x1", pkg}, func() bool { return length(started) > 1 }},
	} {
		for who, tidy := range tidy {
			r := b.start(c.args...)
			b.comes("the "+c.name, c.made)
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-r.done
			if len(left()) == 0 {
				t.Fatalf("%s: nothing was left to remove", c.name)
			}
			if c.name == "build" { // the build still runs and uses its folder
				tidy()
				if len(left()) == 0 {
					t.Errorf("%s removes the folder of a build that goes on", who)
				}
				b.endBuild(started)
			}
			tidy()
			if paths := left(); len(paths) > 0 {
				t.Errorf("%s: %s leaves %q", c.name, who, paths)
			}
		}
	}
	b.start(silent...)
	b.comes("the record", holds(launching))
	for who, tidy := range tidy {
		if tidy(); !holds(launching)() {
			t.Errorf("%s removes the record of a launch that lives", who)
		}
	}
}

// endBuild kills the process whose number is in a file, and removes the file.
func (b *bench) endBuild(file string) {
	b.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(mustRead(b.t, file)))
	if err := errors.Join(err, syscall.Kill(pid, syscall.SIGKILL), os.Remove(file)); err != nil {
		b.t.Fatal(err)
	}
	b.comes("the end of the build", func() bool { return syscall.Kill(pid, 0) != nil })
}

// comes waits until a condition on this machine is true.
func (b *bench) comes(what string, so func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience.Limit); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("not in time: %s", what)
		}
	}
}

// TestNoTemporaryFolder runs commands that build nothing, while the folder for
// temporary files is missing, read-only or full. They must work.
func TestNoTemporaryFolder(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	known := filepath.Join(b.Home, ".ssh", "known_hosts")
	writeInto(t, known, "no line of known hosts\n"+mustRead(t, known), 0o600)
	file, work := b.ResourceFile("h1: cpu*1"), t.TempDir()
	readOnly, full := t.TempDir(), t.TempDir()
	for dir, flags := range map[string]uintptr{readOnly: syscall.MS_RDONLY, full: 0} {
		if err := syscall.Mount("plx-test", dir, "tmpfs", flags, "size=64k"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(full, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for i, tmp := range []string{"/nonexistent", readOnly, full} {
		job := fmt.Sprintf("job%d", i)
		b := b.in(t)
		b.env = append(b.env, "TMPDIR="+tmp)
		writeInto(t, filepath.Join(work, "data"), strings.Repeat(tmp, 1000), 0o600)
		res := b.want(0, "launch", "--hosts", file, "--name", job, "--workdir", work, "--output", "made", "--", "sh", "-c", "wc -c <data; : >made")
		contains(t, res.stdout, "000")
		for _, args := range [][]string{{"exec", "--hosts", file, "true"}, {"probe", "--hosts", file}, {"logs"}, {"status"}, {"jobs"}, {"fetch", job, t.TempDir()}, {"prune", "--older", "0s"}} {
			b.want(0, args...)
		}
		if res := b.run("doctor", "--hosts", file); strings.Contains(res.stderr+res.stdout, "temporary") {
			t.Errorf("plx doctor:\n%s%s", res.stdout, res.stderr)
		}
	}
}
