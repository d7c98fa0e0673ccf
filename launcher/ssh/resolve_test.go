package ssh

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// resolveBoth resolves by ssh -G and by the parser; H stands for the home.
func resolveBoth(t *testing.T, cfg Config) map[string]target {
	t.Helper()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	targets := map[string]target{}
	if binary, err := exec.LookPath("ssh"); err == nil {
		values, err := askSSH(t.Context(), binary, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if targets["ssh -G"], err = newTarget(cfg, values); err != nil {
			t.Fatal(err)
		}
	} else if os.Getenv("CI") == "true" {
		t.Fatal("no ssh")
	}
	values, err := readSettings(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if targets["parser"], err = newTarget(cfg, values); err != nil {
		t.Fatal(err)
	}
	return targets
}

// TestResolve has ssh and the parser agree on what a configuration means.
func TestResolve(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "/run/agent")
	me := localUser()
	usual := []string{"H/.ssh/id_ed25519", "H/.ssh/id_ecdsa", "H/.ssh/id_rsa"}
	global := []string{"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"}
	known := append([]string{"H/.ssh/known_hosts", "H/.ssh/known_hosts2"}, global...)
	plain := target{address: "gpu:22", hostName: "gpu", port: 22, user: me, defaults: usual, agent: "/run/agent", knownHosts: known, timeout: 15 * time.Second}
	with := func(change func(*target)) target {
		changed := plain
		change(&changed)
		return changed
	}
	cases := []struct {
		name, config string
		cfg          Config
		want         target
	}{
		{"no file", "", Config{Host: "gpu"}, plain},
		{"another host", "Host cpu\nPort 1\n", Config{Host: "gpu"}, plain},
		{"alias", "Host gpu\nHostName 10.0.0.3\nUser alice\nPort 2222\n", Config{Host: "gpu"},
			with(func(t *target) { t.address, t.hostName, t.user, t.port = "10.0.0.3:2222", "10.0.0.3", "alice", 2222 })},
		{"the resource file wins", "Host gpu\nHostName 10.0.0.3\nUser alice\nPort 2222\n", Config{Host: "gpu", User: "bob", Port: 22},
			with(func(t *target) { t.address, t.hostName, t.user = "10.0.0.3:22", "10.0.0.3", "bob" })},
		{"the first value wins", "Host gpu\nPort 1\nHost *\nPort 2\n", Config{Host: "gpu"},
			with(func(t *target) { t.address, t.port = "gpu:1", 1 })},
		{"patterns", "Host *.example gp? !cpu\nPort 7\n", Config{Host: "gpu"},
			with(func(t *target) { t.address, t.port = "gpu:7", 7 })},
		{"IPv6", "", Config{Host: "fd00::4"},
			with(func(t *target) { t.address, t.hostName = "[fd00::4]:22", "fd00::4" })},
		{"identity files", "IdentityFile ~/a\nIdentityFile /b/%h/%r\nIdentitiesOnly yes\n", Config{Host: "gpu", User: "bob"},
			with(func(t *target) {
				t.user, t.identitiesOnly, t.identities, t.defaults = "bob", true, []string{"H/a", "/b/gpu/bob"}, nil
			})},
		{"a usual key beside another", "IdentityFile ~/a\nIdentityFile ~/.ssh/id_rsa\n", Config{Host: "gpu"},
			with(func(t *target) { t.identities, t.defaults = []string{"H/a"}, []string{"H/.ssh/id_rsa"} })},
		{"jump hosts", "Host gpu\nProxyJump alice@gate:2222,[fd00::1]:22,last\n", Config{Host: "gpu"},
			with(func(t *target) {
				t.jumps = []hop{{"alice", "gate", 2222}, {"", "fd00::1", 22}, {"", "last", 0}}
			})},
		{"no jump host", "Host gpu\nProxyJump none\nHost *\nProxyJump gate\n", Config{Host: "gpu"}, plain},
		{"known hosts", "UserKnownHostsFile ~/.ssh/mine /other\n", Config{Host: "gpu"},
			with(func(t *target) { t.knownHosts = append([]string{"H/.ssh/mine", "/other"}, global...) })},
		{"known hosts by flag", "UserKnownHostsFile ~/.ssh/mine\n", Config{Host: "gpu", KnownHostsFile: "/kh"},
			with(func(t *target) { t.knownHosts = append([]string{"/kh"}, global...) })},
		{"agent", "IdentityAgent ~/sock\nConnectTimeout 3\nHostKeyAlias name\n", Config{Host: "gpu"},
			with(func(t *target) { t.agent, t.timeout, t.keyAlias = "H/sock", 3*time.Second, "name" })},
		{"no agent", "IdentityAgent none\n", Config{Host: "gpu"}, with(func(t *target) { t.agent = "" })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			cfg := c.cfg
			cfg.Home = home
			if c.config != "" {
				writeConfig(t, home, c.config)
			}
			want := withHome(c.want, home)
			for by, got := range resolveBoth(t, cfg) {
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

// withHome puts the home for a leading H.
func withHome(t target, home string) target {
	put := func(paths []string) (put []string) {
		for _, path := range paths {
			if strings.HasPrefix(path, "H/") {
				path = home + path[1:]
			}
			put = append(put, path)
		}
		return put
	}
	t.identities, t.defaults, t.knownHosts = put(t.identities), put(t.defaults), put(t.knownHosts)
	t.agent = put([]string{t.agent})[0]
	return t
}

// A known_hosts named by its full path under the password file's home is meant.
func TestKnownHostsNamedInFull(t *testing.T) {
	other := sshHome()
	if other == "" {
		t.Skip("needs ssh")
	}
	home := t.TempDir()
	writeConfig(t, home, "UserKnownHostsFile "+other+"/.ssh/cluster\n")
	for by, got := range resolveBoth(t, Config{Host: "gpu", Home: home}) {
		if got.knownHosts[0] != other+"/.ssh/cluster" {
			t.Errorf("%s: %v", by, got.knownHosts)
		}
	}
}

func TestValidateRejects(t *testing.T) {
	for _, cfg := range []Config{
		{}, {Host: "-oProxyCommand=x"}, {Host: "a b"}, {Host: "a", User: "-l"}, {Host: "a", Port: -1},
		{Host: "a", Port: 65536}, {Host: "u@a"}, {Host: "a;b"}, {Host: "$(x)"}, {Host: "a\nb"},
	} {
		cfg.Home = "/nonexistent"
		if err := cfg.validate(); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestProxyCommandIsRefused(t *testing.T) {
	home := t.TempDir()
	writeConfig(t, home, "ProxyCommand nc %h %p\n")
	_, err := resolve(t.Context(), Config{Host: "gpu", Home: home, ConfigFile: filepath.Join(home, ".ssh", "config")})
	if err == nil || !strings.Contains(err.Error(), "ProxyCommand") {
		t.Errorf("resolve: %v", err)
	}
}

// HostName of a configuration gets no further than one of the resource file.
func TestHostNameIsChecked(t *testing.T) {
	cfg := Config{Host: "gpu", Home: "/nonexistent"}
	if _, err := newTarget(cfg, settings{"hostname": {"-oX"}}); err == nil {
		t.Error("a host name that begins with - was taken")
	}
}

func FuzzParseHop(f *testing.F) {
	for _, seed := range []string{"a", "u@a:22", "[::1]:2", "ssh://u@a:1/", "u%40x@a", "@", ":", "[", "a:b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		h, err := parseHop(word)
		if err == nil && (h.host == "" || strings.HasPrefix(h.host, "-") || h.port < 0 || h.port > 65535) {
			t.Errorf("%q gives %+v", word, h)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("hostname a\nport 22\nproxyjump b,c\nuserknownhostsfile a \"b c\"\nidentityfile ~/x%d\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg := Config{Host: "gpu", Home: "/home/x"}
		got, err := newTarget(cfg, parseSettings([]byte(text)))
		if err != nil {
			return
		}
		for _, path := range append(got.identities, got.knownHosts...) {
			if !filepath.IsAbs(path) && path != "none" {
				t.Errorf("%q gives the relative path %q", text, path)
			}
		}
	})
}
