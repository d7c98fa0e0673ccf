package ssh_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/plx-run/plx/launcher/ssh"
)

func line(names string, key gossh.PublicKey) string {
	return names + " " + string(gossh.MarshalAuthorizedKey(key))
}

// TestKnownHosts dials a server with different contents of known_hosts.
func TestKnownHosts(t *testing.T) {
	server := startSSHD(t)
	_, other := makeKey(nil)
	cases := []struct {
		name, file      string
		config          string // of the user
		unknown, change bool
	}{
		{name: "plain", file: line(server.address(), server.hostKey)},
		{name: "hashed", file: line(knownhosts.HashHostname(server.address()), server.hostKey)},
		{name: "several names", file: line("a.example,"+server.address()+",b", server.hostKey)},
		{name: "wildcard", file: line("127.0.*", server.hostKey)},
		{name: "second line", file: line(server.address(), other) + line(server.address(), server.hostKey)},
		{name: "with comments", file: "# comment\n\n" + line(server.address(), server.hostKey)},
		{name: "with lines that nobody understands", file: "x\nhost ssh-magic AAAA\n1024 35 1234\n" + line(server.address(), server.hostKey)},
		{name: "empty", file: "", unknown: true},
		{name: "another host", file: line("[127.0.0.2]:22", server.hostKey), unknown: true},
		{name: "another port", file: line("127.0.0.1", server.hostKey), unknown: true},
		{name: "authority of others", file: "@cert-authority * " + strings.TrimPrefix(line("", other), " "), unknown: true},
		{name: "changed", file: line("x", other) + line(server.address(), other), change: true},
		{name: "revoked", file: "@revoked * " + strings.TrimPrefix(line("", server.hostKey), " ") + line(server.address(), server.hostKey), change: true},
		// plx always checks host keys, and records new ones only if the user
		// allows it.
		{name: "unknown, unchecked", config: "StrictHostKeyChecking no\n", unknown: true},
		{name: "changed, unchecked", file: line("x", other) + line(server.address(), other), config: "StrictHostKeyChecking no\n", change: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			home := newHome(t)
			writeFile(t, knownHosts(home), c.file, 0o600)
			sshConfig(t, home, c.config)
			client, err := ssh.Dial(t.Context(), server.config(home))
			if err == nil {
				_ = client.Close() // only the result of the dial matters
			}
			var refused *ssh.HostKeyError
			is := errors.As(err, &refused)
			switch {
			case !c.unknown && !c.change && err != nil:
				t.Errorf("dial: %v", err)
			case (c.unknown || c.change) && !is:
				t.Fatalf("dial: %v, want a HostKeyError", err)
			case is && (refused.Changed() != c.change || (hintOf(err) == "") != c.change):
				t.Errorf("dial: %v, hint %q, want changed %v", err, hintOf(err), c.change)
			}
			if strings.HasPrefix(c.name, "changed") && !strings.Contains(err.Error(), knownHosts(home)+":2") {
				t.Errorf("%v: file and line are missing", err)
			}
			if revoked := c.name == "revoked"; is && refused.Revoked != revoked || revoked && !strings.Contains(err.Error(), "which is revoked at "+knownHosts(home)+":1") {
				t.Errorf("%v: want revoked %v, with file and line", err, revoked)
			}
			if readFile(t, knownHosts(home)) != c.file {
				t.Error("known_hosts was changed")
			}
		})
	}
}

func TestUnknownHostHint(t *testing.T) {
	server := startSSHD(t)
	home := newHome(t)
	_, err := ssh.Dial(t.Context(), server.config(home))
	for _, want := range []string{"--accept-new-host-keys", "accept-new in"} {
		if !strings.Contains(hintOf(err), want) {
			t.Errorf("hint %q of %v: %q is missing", hintOf(err), err, want)
		}
	}
}

// Many concurrent dials add a single line to known_hosts and keep its other
// lines.
func TestAcceptNewHostKeysRecordsOneLine(t *testing.T) {
	server := startSSHD(t)
	for name, before := range map[string]string{
		"no folder": "", "a file": "# mine\n", "no final newline": "# mine",
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t)
			if err := os.Remove(knownHosts(home)); err != nil {
				t.Fatal(err)
			}
			cfg := server.config(home)
			if before == "" {
				cfg.KnownHostsFile = filepath.Join(home, "new", "folder", "known_hosts")
			} else {
				cfg.KnownHostsFile = knownHosts(home)
				writeFile(t, cfg.KnownHostsFile, before, 0o600)
			}
			cfg.AcceptNewHostKeys = true
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					client, err := ssh.Dial(t.Context(), cfg)
					if err != nil {
						t.Errorf("dial: %v", err)
						return
					}
					_ = client.Close() // only the result of the dial matters
				})
			}
			all.Wait()
			got := readFile(t, cfg.KnownHostsFile)
			if !strings.HasPrefix(got, before) || strings.Count(got, server.address()) != 1 || !strings.HasSuffix(got, "\n") {
				t.Errorf("known_hosts is %q", got)
			}
			if info, err := os.Stat(cfg.KnownHostsFile); err != nil || info.Mode() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			cfg.AcceptNewHostKeys = false
			dial(t, cfg)
		})
	}
}

func TestAcceptNewRefusesChangedKey(t *testing.T) {
	server := startSSHD(t)
	home := newHome(t)
	_, other := makeKey(nil)
	file := line(server.address(), other)
	writeFile(t, knownHosts(home), file, 0o600)
	cfg := server.config(home)
	cfg.AcceptNewHostKeys = true
	_, err := ssh.Dial(t.Context(), cfg)
	var refused *ssh.HostKeyError
	if !errors.As(err, &refused) || !refused.Changed() || readFile(t, knownHosts(home)) != file {
		t.Errorf("dial: %v, known_hosts %q", err, readFile(t, knownHosts(home)))
	}
}

// rsaKey writes an RSA key.
func rsaKey(t *testing.T, path string) gossh.PublicKey {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return writePrivate(t, path, private)
}

func writePrivate(t *testing.T, path string, private crypto.Signer) gossh.PublicKey {
	t.Helper()
	block, err := gossh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(pem.EncodeToMemory(block)), 0o600)
	public, err := gossh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// A server with two host keys is asked for the one in known_hosts, even if it
// prefers the other.
func TestRecordedKeyTypeIsRequestedFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "host_rsa")
	public := rsaKey(t, file)
	server := startSSHD(t, "HostKey "+file, "HostKeyAlgorithms rsa-sha2-256,rsa-sha2-512,ssh-ed25519")
	for _, key := range []gossh.PublicKey{public, server.hostKey} {
		home := newHome(t)
		writeFile(t, knownHosts(home), line(server.address(), key), 0o600)
		dial(t, server.config(home))
	}
}

func TestHostCertificate(t *testing.T) {
	folder := t.TempDir()
	public := writeKey(t, filepath.Join(folder, "host"), nil)
	authorityPEM, authority := makeKey(nil)
	signer, err := gossh.ParsePrivateKey(authorityPEM)
	if err != nil {
		t.Fatal(err)
	}
	cert := &gossh.Certificate{Key: public, CertType: gossh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: gossh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, "host-cert.pub"), string(gossh.MarshalAuthorizedKey(cert)), 0o600)
	server := startSSHD(t, "HostKey "+folder+"/host", "HostCertificate "+folder+"/host-cert.pub")
	home := newHome(t)
	writeFile(t, knownHosts(home), "@cert-authority "+line(server.address(), authority), 0o600)
	dial(t, server.config(home))
}

// TestStrictHostKeyChecking checks that plx obeys StrictHostKeyChecking,
// except that it never skips the check.
func TestStrictHostKeyChecking(t *testing.T) {
	server := startSSHD(t)
	_, other := makeKey(nil)
	changed := line(server.address(), other)
	for name, c := range map[string]struct {
		config, known string
		fail, hint    string // in the error and in its hint; empty fail for success
		after         string // in known_hosts, afterwards
		notice        string
	}{
		"accept-new":                {config: "StrictHostKeyChecking accept-new\n", after: server.address(), notice: "recorded in"},
		"accept-new, changed":       {config: "StrictHostKeyChecking accept-new\n", known: changed, fail: "another key is recorded", after: server.address()},
		"accept-new, kept nowhere":  {config: "StrictHostKeyChecking accept-new\nUserKnownHostsFile /dev/null\n", notice: "accepted but not recorded"},
		"accept-new of other hosts": {config: "Host a\nStrictHostKeyChecking accept-new\n", fail: "none is known", hint: "--accept-new-host-keys"},
		"yes":                       {config: "StrictHostKeyChecking yes\n", fail: "none is known", hint: "--accept-new-host-keys"},
		"no":                        {config: "StrictHostKeyChecking no\n", fail: "ignores StrictHostKeyChecking no", hint: "--accept-new-host-keys"},
		"off":                       {config: "StrictHostKeyChecking off\n", fail: "ignores StrictHostKeyChecking no", hint: "--accept-new-host-keys"},
		"no, kept nowhere":          {config: "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n", fail: "ignores StrictHostKeyChecking no", hint: "--accept-new-host-keys"},
		"no, changed":               {config: "StrictHostKeyChecking no\n", known: changed, fail: "ignores StrictHostKeyChecking no", after: server.address()},
	} {
		for _, reader := range []string{"ssh", "plx"} {
			t.Run(name+", read by "+reader, func(t *testing.T) {
				home := newHome(t)
				writeFile(t, knownHosts(home), c.known, 0o600)
				sshConfig(t, home, c.config)
				if reader == "plx" {
					t.Setenv("PATH", t.TempDir()) // no ssh
				}
				cfg := server.config(home)
				var told notices
				cfg.Notice = told.add
				client, err := ssh.Dial(t.Context(), cfg)
				if err == nil {
					_ = client.Close() // only the result of the dial matters
				}
				if c.fail == "" && err != nil || c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) || !strings.Contains(hintOf(err), c.hint) || strings.Contains(hintOf(err), "keyscan") {
					t.Errorf("dial: %v, hint %q, want %q", err, hintOf(err), c.fail)
				}
				if got := readFile(t, knownHosts(home)); (c.after == "") != (got == "") || !strings.Contains(got, c.after) || reader == "ssh" && !strings.Contains(told.String(), c.notice) { // one process prints the notice only once
					t.Errorf("known_hosts %q, notices %q", got, told.String())
				}
			})
		}
	}
}

// The hint for an unknown host names no host, so that plx can merge the hints
// of several hosts.
func TestUnknownHostsShareHint(t *testing.T) {
	one, two := startSSHD(t), startSSHD(t)
	home := newHome(t)
	_, err := ssh.Dial(t.Context(), one.config(home))
	_, other := ssh.Dial(t.Context(), two.config(home))
	if hintOf(err) == "" || hintOf(err) != hintOf(other) {
		t.Errorf("%q, %q", hintOf(err), hintOf(other))
	}
}
