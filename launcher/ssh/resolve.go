package ssh

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// target is what the configuration makes of a Config.
type target struct {
	address        string // host:port to connect to
	hostName       string
	port           int
	user           string
	keyAlias       string   // HostKeyAlias
	identities     []string // key files that the configuration names
	defaults       []string // the usual key files; they may be missing
	identitiesOnly bool
	agent          string   // socket of the agent, "" for none
	knownHosts     []string // the user's first: new keys are recorded there
	jumps          []hop
	timeout        time.Duration
}

// hop is a jump host as ProxyJump writes it.
type hop struct {
	user, host string
	port       int
}

// resolveTimeout bounds ssh -G, which may run commands of Match exec.
const resolveTimeout = 10 * time.Second

// resolve looks the host up in the ssh configuration.
func resolve(ctx context.Context, cfg Config) (target, error) {
	if cfg.HostKey != nil {
		return resolveNothing(cfg), nil
	}
	values, err := settingsOf(ctx, cfg)
	if err != nil {
		return target{}, err
	}
	return newTarget(cfg, values)
}

// resolveNothing is for a Config that brings its own keys.
func resolveNothing(cfg Config) target {
	t := target{hostName: cfg.Host, port: cfg.Port, user: cfg.User, timeout: defaultDialTimeout}
	if t.port == 0 {
		t.port = 22
	}
	t.address = joinAddress(t.hostName, t.port)
	return t
}

// settings are the keywords of a configuration, in lower case, that hold for
// one host. Keywords that may stand several times have several values.
type settings map[string][]string

func (s settings) first(key string) string {
	if len(s[key]) == 0 {
		return ""
	}
	return s[key][0]
}

// settingsOf asks ssh where there is one, and reads the file itself otherwise.
func settingsOf(ctx context.Context, cfg Config) (settings, error) {
	binary, err := exec.LookPath("ssh")
	if err != nil {
		return readSettings(cfg)
	}
	return askSSH(ctx, binary, cfg)
}

// askSSH returns what ssh -G prints.
func askSSH(ctx context.Context, binary string, cfg Config) (settings, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	file := cfg.ConfigFile
	if _, err := os.Stat(file); os.IsNotExist(err) {
		file = os.DevNull
	}
	args := []string{"-G", "-F", file}
	if cfg.Port != 0 {
		args = append(args, "-p", strconv.Itoa(cfg.Port))
	}
	if cfg.User != "" {
		args = append(args, "-l", cfg.User)
	}
	cmd := exec.CommandContext(ctx, binary, append(args, "--", cfg.Host)...)
	cmd.Env = append(os.Environ(), "HOME="+cfg.Home)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read ssh configuration %s: %s -G: %w: %s", file, binary, err, strings.TrimSpace(stderr.String()))
	}
	return parseSettings(out), nil
}

// parseSettings reads the output of ssh -G.
func parseSettings(out []byte) settings {
	values := settings{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, len(out)+1)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		key = strings.ToLower(key)
		values[key] = append(values[key], value)
	}
	return values
}

// newTarget makes a target of settings. What the Config says wins.
func newTarget(cfg Config, values settings) (target, error) {
	t := target{
		hostName: values.first("hostname"), user: values.first("user"),
		identitiesOnly: values.first("identitiesonly") == "yes",
		timeout:        defaultDialTimeout,
	}
	if alias := values.first("hostkeyalias"); alias != "none" {
		t.keyAlias = alias
	}
	if t.hostName == "" {
		t.hostName = cfg.Host
	}
	if err := checkName("host", t.hostName); err != nil {
		return target{}, fmt.Errorf("%s: HostName: %w", cfg.ConfigFile, err)
	}
	if err := t.setPort(cfg, values.first("port")); err != nil {
		return target{}, err
	}
	t.setUser(cfg)
	if seconds, err := strconv.Atoi(values.first("connecttimeout")); err == nil && seconds > 0 {
		t.timeout = time.Duration(seconds) * time.Second
	}
	t.address = joinAddress(t.hostName, t.port)
	expand := newExpander(cfg, t)
	t.setKeys(cfg, values, expand)
	t.setKnownHosts(cfg, values, expand)
	return t, t.setJumps(cfg, values)
}

func (t *target) setPort(cfg Config, value string) error {
	t.port = cfg.Port
	if t.port == 0 && value != "" {
		port, err := strconv.Atoi(value)
		if err != nil || port < 1 || port > 65535 {
			return fmt.Errorf("%s: port %q is not between 1 and 65535", cfg.ConfigFile, value)
		}
		t.port = port
	}
	if t.port == 0 {
		t.port = 22
	}
	return nil
}

func (t *target) setUser(cfg Config) {
	if cfg.User != "" {
		t.user = cfg.User
	}
	if t.user == "" {
		t.user = localUser()
	}
}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// usualKeys are tried in this order when they exist.
var usualKeys = []string{"id_ed25519", "id_ecdsa", "id_rsa"}

// setKeys sorts key files into those that were asked for and the usual ones:
// ssh -G prints its defaults like any other.
func (t *target) setKeys(cfg Config, values settings, expand expander) {
	usual := map[string]bool{}
	for _, name := range usualKeys {
		path := filepath.Join(cfg.Home, ".ssh", name)
		t.defaults = append(t.defaults, path)
		usual[path] = true
	}
	for _, name := range []string{"id_ecdsa_sk", "id_ed25519_sk", "id_xmss", "id_dsa"} {
		usual[filepath.Join(cfg.Home, ".ssh", name)] = true
	}
	for _, value := range values["identityfile"] {
		path := expand.path(value)
		if path != "none" && !usual[path] {
			t.identities = append(t.identities, path)
		}
	}
	if len(t.identities) > 0 {
		t.defaults = t.askedDefaults(values["identityfile"], expand)
	}
	t.agent = os.Getenv("SSH_AUTH_SOCK")
	switch agent := values.first("identityagent"); {
	case agent == "none":
		t.agent = ""
	case agent != "" && agent != "SSH_AUTH_SOCK":
		t.agent = expand.ownPath(agent)
	}
}

// askedDefaults keeps the usual keys only where they are named beside others,
// as ssh leaves its defaults out when a key is named.
func (t *target) askedDefaults(values []string, expand expander) []string {
	var kept []string
	for _, path := range t.defaults {
		for _, value := range values {
			if expand.path(value) == path {
				kept = append(kept, path)
			}
		}
	}
	return kept
}

func (t *target) setKnownHosts(cfg Config, values settings, expand expander) {
	user := values.first("userknownhostsfile")
	switch {
	case cfg.KnownHostsFile != "":
		t.knownHosts = []string{cfg.KnownHostsFile}
	case user == "":
		t.knownHosts = []string{filepath.Join(cfg.Home, ".ssh", "known_hosts"), filepath.Join(cfg.Home, ".ssh", "known_hosts2")}
	case user == "none":
		t.knownHosts = []string{os.DevNull}
	default:
		for _, file := range splitWords(user) {
			t.knownHosts = append(t.knownHosts, expand.ownPath(file))
		}
	}
	system := values.first("globalknownhostsfile")
	if system == "" {
		system = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
	}
	if system != "none" {
		t.knownHosts = append(t.knownHosts, splitWords(system)...)
	}
}

func (t *target) setJumps(cfg Config, values settings) error {
	if command := values.first("proxycommand"); command != "" && command != "none" {
		err := fmt.Errorf("%s: ProxyCommand is not supported", cfg.ConfigFile)
		return &hintedError{err, "use ProxyJump for a host that is reached through another"}
	}
	value := values.first("proxyjump")
	if value == "" || value == "none" {
		return nil
	}
	for _, word := range strings.Split(value, ",") {
		jump, err := parseHop(strings.TrimSpace(word))
		if err != nil {
			return fmt.Errorf("%s: ProxyJump %q: %w", cfg.ConfigFile, value, err)
		}
		t.jumps = append(t.jumps, jump)
	}
	return nil
}

// sshHome returns the home that ssh puts for ~, which is the password file's.
var sshHome = sync.OnceValue(func() string {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", "-G", "-F", os.DevNull, "--", "localhost").Output()
	if err != nil {
		return ""
	}
	file, _, _ := strings.Cut(parseSettings(out).first("userknownhostsfile"), " ")
	home, found := strings.CutSuffix(file, "/.ssh/known_hosts")
	if !found {
		return ""
	}
	return home
})
