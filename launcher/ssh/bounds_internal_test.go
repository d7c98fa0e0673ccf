package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// With HostKeyAlias, the host's entry in known_hosts is the alias without a
// port.
func TestHostKeyAliasIgnoresPort(t *testing.T) {
	for _, c := range []struct {
		target sshconfig.Target
		want   string
	}{
		{sshconfig.Target{HostName: "GPU01", Port: 2222}, "gpu01:2222"},
		{sshconfig.Target{HostName: "gpu01", Port: 2222, KeyAlias: "Node-7"}, "node-7:22"},
	} {
		k, err := newHostKeys(Config{}, c.target)
		if err != nil || k.address != c.want {
			t.Errorf("%+v: %q, %v, want %q", c.target, k.address, err, c.want)
		}
	}
}

// If the disk is full, plx returns an error and does not report the key as
// recorded.
func TestHostKeyIsNotRecordedOnFullDisk(t *testing.T) {
	file, err := os.OpenFile("/dev/full", os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := appendLine(file, "gpu01 ssh-ed25519 AAAA"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want %v", err, syscall.ENOSPC)
	}
}

// Another process may record a host key between the handshake and the lock on
// known_hosts. An equal key is then not recorded twice; a different key makes
// plx refuse the host.
func TestHostKeyRecordedByOtherProcessDecides(t *testing.T) {
	const address = "127.0.0.1:2222"
	ours, theirs := newPublicKey(t), newPublicKey(t)
	for name, c := range map[string]struct {
		recorded gossh.PublicKey
		changed  bool
	}{"the same": {ours, false}, "another": {theirs, true}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "known_hosts")
			text := knownhosts.Line([]string{address}, c.recorded) + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			k := &hostKeys{cfg: Config{Host: "h1", Notice: func(line string) { t.Errorf("noticed %q", line) }}, files: []string{file}, address: address}
			err := k.record(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2222}, ours)
			var refused *HostKeyError
			if is := errors.As(err, &refused); is != c.changed || !is && err != nil || is && !refused.Changed() {
				t.Errorf("got %v", err)
			}
			if after, err := os.ReadFile(file); err != nil || string(after) != text {
				t.Errorf("known_hosts is now %q, %v", after, err)
			}
		})
	}
}

func newPublicKey(t *testing.T) gossh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := gossh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A write to a peer that does not read fails after the write timeout.
func TestWriteTimesOut(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	ended := make(chan error, 1)
	conn := &timedConn{Conn: near, writeTimeout: 20 * time.Millisecond, start: time.Now()}
	go func() {
		_, err := conn.Write([]byte(strings.Repeat("x", 100)))
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience.Limit):
		t.Error("the write did not end")
	}
}
