package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestFirstLaunchSendsLittle counts the bytes that the launching machine
// sends. It sends plx itself to two hosts, which pass it on to the others. It
// sends a program to one host, and of a changed program only the changes.
func TestFirstLaunchSendsLittle(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 4})
	file := b.ResourceFile("h1", "h2", "h3", "h4")
	program := filepath.Join(t.TempDir(), "train")
	random := rand.NewChaCha8([32]byte{8})
	text := append([]byte("#!/bin/sh\necho trained; exit 0\n"), make([]byte, 4<<20)...)
	random.Read(text[1<<10:])
	launch := func(program string) int64 {
		before := b.received()
		res := b.want(0, "launch", "--hosts", file, program)
		if n := strings.Count(res.stdout, "trained"); n != 4 && program != "true" || strings.Contains(res.stderr, "could not pass files on") {
			t.Errorf("%d of 4 workers ran it:\n%s\n%s", n, res.stdout, res.stderr)
		}
		return b.received() - before
	}
	plx, err := os.Stat(b.plx)
	if err != nil {
		t.Fatal(err)
	}
	if sent := launch("true"); sent > plx.Size()*3/2 { // the compressed plx has less than half of its size, and is sent to two hosts
		t.Errorf("this machine has sent %d KiB for 4 hosts, plx has %d KiB", sent>>10, plx.Size()>>10)
	}
	for _, c := range []struct {
		name string
		most int64 // bytes
	}{{"new", 3 * int64(len(text)) / 2}, {"changed by 1 %", 1 << 20}, {"unchanged", 1 << 18}} {
		if c.name != "unchanged" {
			random.Read(text[2<<20 : 2<<20+40<<10])
			if err := executable.Write(program, text, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if sent := launch(program); sent > c.most {
			t.Errorf("%s: this machine has sent %d KiB of a program of %d KiB for 4 hosts", c.name, sent>>10, len(text)>>10)
		}
	}
	for _, h := range b.Hosts { // after sending programs, hosts keep only the programs and the lists of their chunks
		out, err := h.Command(t.Context(), "sh", "-c", "find .plx/files/programs -size +64k; find .plx/blobs -name '.*' -type f").Output()
		if err != nil || len(out) > 0 {
			t.Errorf("%s has %s, %v", h.Name, out, err)
		}
	}
	b.hostsGone(0)
}

// received returns how many more bytes the hosts have received than they have sent.
func (b *bench) received() (bytes int64) {
	b.t.Helper()
	for _, h := range b.Hosts {
		from, to, err := h.Traffic()
		if err != nil {
			b.t.Fatal(err)
		}
		bytes += int64(to) - int64(from)
	}
	return bytes
}
