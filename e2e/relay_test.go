//go:build long

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestWorkdirTravelsOnce counts the bytes that the launching machine sends if
// five hosts lack a folder. The hosts must pass the folder on to each other.
func TestWorkdirTravelsOnce(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 5})
	file := b.ResourceFile("h1", "h2", "h3", "h4", "h5")
	b.dir = t.TempDir()
	b.want(0, "launch", "--hosts", file, "true") // the agents are there
	data := make([]byte, 8<<20)
	random := rand.NewChaCha8([32]byte{7})
	random.Read(data)
	if err := os.WriteFile(filepath.Join(b.dir, "data.bin"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	before := b.received()
	res := b.want(0, "launch", "--hosts", file, "--workdir", ".", "sha256sum", "data.bin")
	if n := strings.Count(res.stdout, hex.EncodeToString(sum[:])); n != 5 {
		t.Errorf("%d of 5 hosts have the file:\n%s\n%s", n, res.stdout, res.stderr)
	}
	if strings.Contains(res.stderr, "could not pass files on") {
		t.Errorf("hosts do not reach each other:\n%s", res.stderr)
	}
	// What one host sends, another host receives. So the difference of both
	// came from the launching machine.
	if sent := b.received() - before; sent < int64(len(data)) || sent > 2*int64(len(data)) {
		t.Errorf("this machine has sent %d KiB of a file of %d KiB for 5 hosts", sent>>10, len(data)>>10)
	}
	b.hostsGone(0)
}
