package sshconfig

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// resolveBoth resolves q by ssh -G and by plx's own parser. "H" in paths
// stands for the home directory.
func resolveBoth(t *testing.T, q Query) map[string]Target {
	t.Helper()
	q.ConfigFile = filepath.Join(q.Home, ".ssh", "config")
	targets := map[string]Target{}
	if binary, err := exec.LookPath("ssh"); err == nil {
		values, err := askSSH(t.Context(), binary, q)
		if err != nil {
			t.Fatal(err)
		}
		if targets["ssh -G"], err = newTarget(q, values); err != nil {
			t.Fatal(err)
		}
	} else if os.Getenv("CI") == "true" {
		t.Fatal("no ssh")
	}
	values, err := readSettings(q)
	if err != nil {
		t.Fatal(err)
	}
	if targets["parser"], err = newTarget(q, values); err != nil {
		t.Fatal(err)
	}
	return targets
}

// TestResolve checks that ssh -G and plx's own parser give the same Target for
// a configuration.
func TestResolve(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/run/agent")
	me := localUser()
	usual := []string{"H/.ssh/id_ed25519", "H/.ssh/id_ecdsa", "H/.ssh/id_rsa", "H/.ssh/id_ecdsa_sk", "H/.ssh/id_ed25519_sk"}
	global := []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
	known := append([]string{"H/.ssh/known_hosts", "H/.ssh/known_hosts2"}, global...)
	plain := Target{Address: "gpu:22", HostName: "gpu", Port: 22, User: me, Defaults: usual, Agent: "/run/agent", KnownHosts: known, Connect: DefaultConnect, Timeout: DefaultTimeout, Network: "tcp"}
	with := func(change func(*Target)) Target {
		changed := plain
		change(&changed)
		return changed
	}
	// this machine's own ssh_config must not influence the test
	old := systemFile
	systemFile = filepath.Join(t.TempDir(), "none")
	t.Cleanup(func() { systemFile = old })
	cases := []struct {
		name, config string
		q            Query
		want         Target
	}{
		{"no file", "", Query{Host: "gpu"}, plain},
		{"another host", "Host cpu\nPort 1\n", Query{Host: "gpu"}, plain},
		{"alias", "Host gpu\nHostName 10.0.0.3\nUser alice\nPort 2222\n", Query{Host: "gpu"},
			with(func(t *Target) { t.Address, t.HostName, t.User, t.Port = "10.0.0.3:2222", "10.0.0.3", "alice", 2222 })},
		{"the resource file wins", "Host gpu\nHostName 10.0.0.3\nUser alice\nPort 2222\n", Query{Host: "gpu", User: "bob", Port: 22},
			with(func(t *Target) { t.Address, t.HostName, t.User = "10.0.0.3:22", "10.0.0.3", "bob" })},
		{"the first value wins", "Host gpu\nPort 1\nHost *\nPort 2\n", Query{Host: "gpu"},
			with(func(t *Target) { t.Address, t.Port = "gpu:1", 1 })},
		{"patterns", "Host *.example gp? !cpu\nPort 7\n", Query{Host: "gpu"},
			with(func(t *Target) { t.Address, t.Port = "gpu:7", 7 })},
		{"IPv6", "", Query{Host: "fd00::4"},
			with(func(t *Target) { t.Address, t.HostName = "[fd00::4]:22", "fd00::4" })},
		{"identity files", "IdentityFile ~/a\nIdentityFile /b/%h/%r\nIdentitiesOnly yes\n", Query{Host: "gpu", User: "bob"},
			with(func(t *Target) {
				t.User, t.IdentitiesOnly, t.Identities, t.Defaults = "bob", true, []string{"H/a", "/b/gpu/bob"}, nil
			})},
		{"a usual key beside another", "IdentityFile ~/a\nIdentityFile ~/.ssh/id_rsa\n", Query{Host: "gpu"},
			with(func(t *Target) { t.Identities, t.Defaults = []string{"H/a"}, []string{"H/.ssh/id_rsa"} })},
		{"jump hosts", "Host gpu\nProxyJump alice@gate:2222,[fd00::1]:22,last\n", Query{Host: "gpu"},
			with(func(t *Target) {
				t.Jumps = []Hop{{"alice", "gate", 2222}, {"", "fd00::1", 22}, {"", "last", 0}}
			})},
		{"no jump host", "Host gpu\nProxyJump none\nHost *\nProxyJump gate\n", Query{Host: "gpu"}, plain},
		{"known hosts", "UserKnownHostsFile ~/.ssh/mine /other\n", Query{Host: "gpu"},
			with(func(t *Target) { t.KnownHosts = append([]string{"H/.ssh/mine", "/other"}, global...) })},
		{"known hosts by flag", "UserKnownHostsFile ~/.ssh/mine\n", Query{Host: "gpu", KnownHostsFile: "/kh"},
			with(func(t *Target) { t.KnownHosts = append([]string{"/kh"}, global...) })},
		{"agent", "IdentityAgent ~/sock\nConnectTimeout 3\nHostKeyAlias name\n", Query{Host: "gpu"},
			with(func(t *Target) {
				t.Agent, t.Connect, t.Timeout, t.KeyAlias = "H/sock", 3*time.Second, 3*time.Second, "name"
			})},
		{"certificates", "CertificateFile ~/a-cert.pub\nCertificateFile /%h\n", Query{Host: "gpu"},
			with(func(t *Target) { t.Certificates = []string{"H/a-cert.pub", "/gpu"} })},
		{"a command that leads to the host", "HostName 10.0.0.3\nPort 2222\nProxyCommand nc -x \"$P\" %h %p %r %n %%\n", Query{Host: "gpu", User: "bob"},
			with(func(t *Target) {
				t.Address, t.HostName, t.Port, t.User = "10.0.0.3:2222", "10.0.0.3", 2222, "bob"
				t.ProxyCommand = "nc -x \"$P\" 10.0.0.3 2222 bob gpu %"
			})},
		{"no command", "Host gpu\nProxyCommand none\nHost *\nProxyCommand nc %h %p\n", Query{Host: "gpu"}, plain},
		{"IPv6 only, no questions", "AddressFamily inet6\nBatchMode yes\n", Query{Host: "gpu"},
			with(func(t *Target) { t.Network, t.NoPassword, t.NoInteractive = "tcp6", true, true })},
		{"no password", "PasswordAuthentication no\n", Query{Host: "gpu"}, with(func(t *Target) { t.NoPassword = true })},
		{"no agent", "IdentityAgent none\n", Query{Host: "gpu"}, with(func(t *Target) { t.Agent = "" })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			q := c.q
			q.Home = home
			if c.config != "" {
				writeConfig(t, home, c.config)
			}
			want := withHome(c.want, home)
			for by, got := range resolveBoth(t, q) {
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s:\n got %+v\nwant %+v", by, got, want)
				}
			}
		})
	}
}

func writeConfig(t *testing.T, home, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withHome replaces a leading "H" in paths by the home directory.
func withHome(t Target, home string) Target {
	put := func(paths []string) (put []string) {
		for _, path := range paths {
			if strings.HasPrefix(path, "H/") {
				path = home + path[1:]
			}
			put = append(put, path)
		}
		return put
	}
	t.Identities, t.Defaults, t.KnownHosts = put(t.Identities), put(t.Defaults), put(t.KnownHosts)
	t.Certificates = put(t.Certificates)
	t.Agent = put([]string{t.Agent})[0]
	return t
}

// A known_hosts path that the configuration names in full stays, even if it is
// below the home directory in the password database.
func TestKnownHostsWithLiteralPath(t *testing.T) {
	other := sshHome()
	if other == "" {
		t.Skip("needs ssh")
	}
	home := t.TempDir()
	writeConfig(t, home, "UserKnownHostsFile "+other+"/.ssh/cluster\n")
	for by, got := range resolveBoth(t, Query{Host: "gpu", Home: home}) {
		if got.KnownHosts[0] != other+"/.ssh/cluster" {
			t.Errorf("%s: %v", by, got.KnownHosts)
		}
	}
}

// TestSystemConfiguration resolves hosts that the system's ssh_config defines.
// If the user's configuration defines the host too, the user's values count.
func TestSystemConfiguration(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("needs ssh")
	}
	old := systemFile
	t.Cleanup(func() { systemFile = old })
	systemFile = filepath.Join(t.TempDir(), "ssh_config")
	system := "Host gpu\nHostName 10.0.0.3\nPort 2222\nUser alice\nProxyJump gate\nMatch final originalhost gpu\nConnectTimeout 7\n"
	if err := os.WriteFile(systemFile, []byte(system), 0o600); err != nil {
		t.Fatal(err)
	}
	for own, user := range map[string]string{"": "alice", "Host cpu\nPort 1\n": "alice", "Host gpu\nUser bob\nHost z\nPort 3\n": "bob"} {
		home := t.TempDir()
		if own != "" {
			writeConfig(t, home, own)
		}
		got, err := Resolve(t.Context(), Query{Host: "gpu", Home: home, ConfigFile: filepath.Join(home, ".ssh", "config")})
		if err != nil || got.Address != "10.0.0.3:2222" || got.User != user || len(got.Jumps) != 1 || got.Timeout != 7*time.Second {
			t.Errorf("with own configuration %q: %+v, %v", own, got, err)
		}
	}
}

func TestProxyUseFdpassIsRefused(t *testing.T) {
	home := t.TempDir()
	writeConfig(t, home, "ProxyCommand x %h\nProxyUseFdpass yes\n")
	_, err := Resolve(t.Context(), Query{Host: "gpu", Home: home, ConfigFile: filepath.Join(home, ".ssh", "config")})
	if err == nil || !strings.Contains(err.Error(), "ProxyUseFdpass") {
		t.Errorf("resolve: %v", err)
	}
}

// An invalid HostName in the ssh configuration is refused like an invalid host
// in the resource file.
func TestHostNameIsChecked(t *testing.T) {
	q := Query{Host: "gpu", Home: "/nonexistent"}
	if _, err := newTarget(q, settings{"hostname": {"-oX"}}); err == nil {
		t.Error("a host name that begins with - was taken")
	}
}

func FuzzParseHop(f *testing.F) {
	for _, seed := range []string{"a", "u@a:22", "[::1]:2", "ssh://u@a:1/", "u%40x@a", "@", ":", "[", "a:b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		h, err := parseHop(word)
		if err == nil && (h.Host == "" || strings.HasPrefix(h.Host, "-") || h.Port < 0 || h.Port > 65535) {
			t.Errorf("%q gives %+v", word, h)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("hostname a\nport 22\nproxyjump b,c\nuserknownhostsfile a \"b c\"\nidentityfile ~/x%d\n")
	f.Fuzz(func(t *testing.T, text string) {
		q := Query{Host: "gpu", Home: "/home/x"}
		got, err := newTarget(q, parseSettings([]byte(text)))
		if err != nil {
			return
		}
		for _, path := range append(got.Identities, got.KnownHosts...) {
			if !filepath.IsAbs(path) && path != "none" {
				t.Errorf("%q gives the relative path %q", text, path)
			}
		}
	})
}

// If ssh -G exceeds its time limit, the error reports the limit and not the
// signal that killed ssh.
func TestHungSSHTimesOut(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	late := errors.New("no connection within 1s")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	if _, err := askSSH(ctx, binary, Query{Host: "gpu", Home: t.TempDir()}); !errors.Is(err, late) || strings.Contains(err.Error(), "signal") {
		t.Errorf("%v, want %v", err, late)
	}
}
