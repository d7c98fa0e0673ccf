package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

const acceptFlag = "--accept-new-host-keys"

func TestHostKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2, HostKeys: []string{"ed25519", "ecdsa", "rsa"}}).withPlx()
	file := b.ResourceFile()
	known := filepath.Join(b.Home, ".ssh", "known_hosts")
	hello := b.script("hello", "echo up")

	t.Run("a changed key is refused without a hint", func(t *testing.T) {
		b := b.in(t)
		b.Hosts[1].WrongHostKey()
		before := mustRead(t, known)
		for _, more := range [][]string{nil, {acceptFlag}} {
			res := b.want(125, append(append([]string{"launch", "--hosts", file}, more...), hello)...)
			b.says(res, "host h2", "host key", "refused", "another key is recorded", known)
			if strings.Contains(res.stderr, acceptFlag) {
				t.Errorf("a changed key is not to be accepted by a flag:\n%s", res.stderr)
			}
			if res.stdout != "" || mustRead(t, known) != before {
				t.Errorf("known_hosts changed, or a task ran:\n%s", res.stdout)
			}
		}
	})
	t.Run("an unknown key is refused with a hint", func(t *testing.T) {
		b := b.in(t)
		if err := os.WriteFile(known, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		res := b.want(125, "launch", "--hosts", file, hello)
		b.says(res, "host h1", "host key", "refused", "SHA256:")
		b.says(res, "host h2", "host key", "refused", "SHA256:")
		b.says(res, "hint", acceptFlag)
		b.says(b.want(125, "probe", "--hosts", file), "hint", acceptFlag)
		if res.stdout != "" || mustRead(t, known) != "" {
			t.Errorf("known_hosts changed, or a task ran:\n%s", res.stdout)
		}
	})
	t.Run("an unknown key is recorded on request", func(t *testing.T) {
		b := b.in(t)
		res := b.want(0, "launch", acceptFlag, "--hosts", file, hello)
		for _, h := range b.Hosts {
			b.says(res, h.Name, "recorded", known)
			if n := strings.Count(mustRead(t, known), h.Addr+" "); n != 1 {
				t.Errorf("%s is in known_hosts %d times:\n%s", h.Name, n, mustRead(t, known))
			}
		}
		again := b.want(0, "launch", "--hosts", file, hello)
		if strings.Contains(again.stderr, "host key") {
			t.Errorf("a key that was recorded is new:\n%s", again.stderr)
		}
	})
	b.hostsGone(0)
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
