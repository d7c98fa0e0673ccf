// Package sshconfig reads what the user's ssh configuration says of a host.
//
//	target, err := sshconfig.Resolve(ctx, sshconfig.Query{Host: "gpu03", Home: home, ConfigFile: home + "/.ssh/config"})
//
// It asks ssh -G if there is an ssh, which reads the user's and the system's configuration.
// Otherwise it parses the common keywords of the user's. It connects to nothing.
package sshconfig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kevinburke/ssh_config"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/scratch"
)

// Query is a host as the user names it. Host, Home and ConfigFile are required.
type Query struct {
	Host           string // may be an alias of the configuration
	User           string // empty: of the configuration, then the local user
	Port           int    // 0: of the configuration, then 22
	Home           string // "~" in file names
	ConfigFile     string // a missing file is an empty one
	KnownHostsFile string // empty: of the configuration, then <Home>/.ssh/known_hosts
}

// Target is what the configuration makes of a Query.
type Target struct {
	Address        string // host:port to connect to
	HostName       string // name or address of the host, with HostName of the configuration applied
	Port           int
	User           string
	KeyAlias       string        // HostKeyAlias; empty: none
	Identities     []string      // key files that the configuration names
	Certificates   []string      // certificates of keys that the configuration names
	Defaults       []string      // the usual key files, which may be missing
	IdentitiesOnly bool          // offer no keys of the agent except those of the files
	Agent          string        // path of the SSH agent's socket; empty: no agent is used
	KnownHosts     []string      // known_hosts files; new keys are recorded in the first
	Env            []string      // NAME=VALUE, by SendEnv and SetEnv, for each session
	ForwardAgent   string        // path of the socket of the agent to forward; empty: none is
	StrictKeys     string        // StrictHostKeyChecking: AcceptNew, Unchecked, or "" for any other
	Jumps          []Hop         // jump hosts on the way, in order
	ProxyCommand   string        // line for the user's shell, whose input and output lead to the host; empty: none
	Network        string        // tcp, tcp4 or tcp6
	NoPassword     bool          // the user must not be asked for a password
	NoInteractive  bool          // the user must not be asked the server's questions
	Connect        time.Duration // bounds the way to the server in one attempt; never 0
	Timeout        time.Duration // bounds one attempt, with the handshake; never 0
}

// Hop is a jump host.
type Hop struct {
	User, Host string // User may be empty
	Port       int    // 0: that of the configuration, then 22
}

// What bounds an attempt unless ConnectTimeout of the configuration does: the way to the server,
// and the way with the handshake, for which a busy server may need longer.
const (
	DefaultConnect = 15 * time.Second
	DefaultTimeout = time.Minute
)

// resolveTimeout bounds ssh -G: it may run commands of Match exec.
const resolveTimeout = 10 * time.Second

// Resolve looks the host up in the ssh configuration. It asks ssh, and reads the file on a
// machine without an ssh.
func Resolve(ctx context.Context, q Query) (Target, error) {
	var values settings
	binary, err := exec.LookPath("ssh")
	if err == nil {
		values, err = askSSH(ctx, binary, q)
	} else {
		values, err = readSettings(q)
	}
	if err != nil {
		return Target{}, err
	}
	return newTarget(q, values)
}

// settings are the values of the keywords that hold for one host, by keyword in lower
// case.
type settings map[string][]string

func (s settings) first(key string) string {
	if len(s[key]) == 0 {
		return ""
	}
	return s[key][0]
}

// askSSH returns what ssh -G prints.
func askSSH(ctx context.Context, binary string, q Query) (settings, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, resolveTimeout, fmt.Errorf("no answer within %v: does a command of Match exec hang?", resolveTimeout))
	defer cancel()
	args := []string{"-G"}
	if q.ConfigFile != filepath.Join(sshHome(), ".ssh", "config") {
		folder, err := scratch.New()
		if err != nil {
			return nil, fmt.Errorf("read ssh configuration: %w", err)
		}
		file := filepath.Join(folder.Path, "config")
		// With -F, ssh reads neither file by itself. It may read the new one twice, so that a pipe
		// is of no use.
		both := fmt.Sprintf("Include %q\nInclude %q\n", q.ConfigFile, systemFile)
		if err := os.WriteFile(file, []byte(both), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("read ssh configuration: %w", err), folder.Remove())
		}
		defer func() { _ = folder.Remove() }() // a short file
		args = append(args, "-F", file)
	}
	if q.Port != 0 {
		args = append(args, "-p", strconv.Itoa(q.Port))
	}
	if q.User != "" {
		args = append(args, "-l", q.User)
	}
	cmd := exec.CommandContext(ctx, binary, append(args, "--", q.Host)...)
	cmd.Env = append(os.Environ(), "HOME="+q.Home)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil { // err says that it was killed
		return nil, fmt.Errorf("read ssh configuration %s: %s -G: %w", q.ConfigFile, binary, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh configuration %s: %s -G: %w: %s", q.ConfigFile, binary, err, strings.TrimSpace(stderr.String()))
	}
	return parseSettings(out), nil
}

// systemFile is the configuration of all users.
var systemFile = "/etc/ssh/ssh_config"

// parseSettings reads the output of ssh -G.
func parseSettings(out []byte) settings {
	values := settings{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		key = strings.ToLower(key)
		values[key] = append(values[key], value)
	}
	return values
}

// newTarget makes a Target of settings. The Query overrules them.
func newTarget(q Query, values settings) (Target, error) {
	t := Target{
		HostName:       cmp.Or(values.first("hostname"), q.Host),
		User:           cmp.Or(q.User, values.first("user"), localUser()),
		Port:           cmp.Or(q.Port, 22),
		IdentitiesOnly: values.first("identitiesonly") == "yes",
		Connect:        DefaultConnect,
		Timeout:        DefaultTimeout,
		Network:        networks[values.first("addressfamily")],
	}
	batch := values.first("batchmode") == "yes"
	t.NoPassword = batch || values.first("passwordauthentication") == "no"
	t.NoInteractive = batch || values.first("kbdinteractiveauthentication") == "no"
	if alias := values.first("hostkeyalias"); alias != "none" {
		t.KeyAlias = alias
	}
	if err := CheckName("host", t.HostName); err != nil {
		return Target{}, fmt.Errorf("%s: HostName: %w", q.ConfigFile, err)
	}
	if port := values.first("port"); q.Port == 0 && port != "" {
		var err error
		if t.Port, err = parsePort(port); err != nil {
			return Target{}, fmt.Errorf("%s: %w", q.ConfigFile, err)
		}
	}
	if seconds, err := strconv.Atoi(values.first("connecttimeout")); err == nil && seconds > 0 {
		t.Timeout = time.Duration(seconds) * time.Second
		t.Connect = t.Timeout
	}
	t.Address = net.JoinHostPort(t.HostName, strconv.Itoa(t.Port))
	expand := newExpander(q, t)
	t.setKeys(q, values, expand)
	t.setKnownHosts(q, values, expand)
	t.Env = environment(values, os.Environ())
	t.setForward(values.first("forwardagent"), expand)
	t.StrictKeys = strictness[strings.ToLower(values.first("stricthostkeychecking"))]
	return t, t.setWay(q, values, expand)
}

// networks are Go's names for the values of AddressFamily.
var networks = map[string]string{"": "tcp", "any": "tcp", "inet": "tcp4", "inet6": "tcp6"}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// usualKeys are the key files that ssh offers if they exist. plx offers the first
// plxKeys of them, in this order. Those of tokens need the agent.
var usualKeys = []string{"id_ed25519", "id_ecdsa", "id_rsa", "id_ecdsa_sk", "id_ed25519_sk", "id_xmss", "id_dsa"}

const plxKeys = 5

// setKeys separates the key files that the configuration names from the usual ones: ssh -G
// prints both. If a key is named, the usual ones must be named too.
func (t *Target) setKeys(q Query, values settings, expand expander) {
	var usual, named []string
	for _, name := range usualKeys {
		usual = append(usual, filepath.Join(q.Home, ".ssh", name))
	}
	for _, value := range values["identityfile"] {
		path := expand.path(value)
		named = append(named, path)
		if path != "none" && !slices.Contains(usual, path) {
			t.Identities = append(t.Identities, path)
		}
	}
	for _, value := range values["certificatefile"] {
		if path := expand.path(value); path != "none" {
			t.Certificates = append(t.Certificates, path)
		}
	}
	for _, path := range usual[:plxKeys] {
		if len(t.Identities) == 0 || slices.Contains(named, path) {
			t.Defaults = append(t.Defaults, path)
		}
	}
	t.Agent = os.Getenv("SSH_AUTH_SOCK")
	switch agent := values.first("identityagent"); {
	case agent == "none":
		t.Agent = ""
	case agent != "" && agent != "SSH_AUTH_SOCK":
		t.Agent = expand.ownPath(agent)
	}
}

// setForward sets the agent to forward. ForwardAgent is yes, no, or a socket.
func (t *Target) setForward(value string, expand expander) {
	switch strings.ToLower(value) {
	case "", "no", "false":
	case "yes", "true":
		t.ForwardAgent = cmp.Or(t.Agent, os.Getenv("SSH_AUTH_SOCK")) // also if IdentityAgent is none
	default:
		t.ForwardAgent = expand.path(value)
	}
}

// environment returns the variables of own that SendEnv names, by patterns, and those of SetEnv.
// The server has the last word on them.
func environment(values settings, own []string) (env []string) {
	var patterns []string
	for _, line := range values["sendenv"] {
		for _, word := range splitWords(line) {
			if drop, is := strings.CutPrefix(word, "-"); is {
				patterns = slices.DeleteFunc(patterns, func(p string) bool { return matches(drop, p) })
			} else {
				patterns = append(patterns, word)
			}
		}
	}
	for _, variable := range own {
		name, _, _ := strings.Cut(variable, "=")
		if slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) }) {
			env = append(env, variable)
		}
	}
	return append(env, values["setenv"]...)
}

// matches reports whether a name has a pattern with * and ?.
func matches(pattern, name string) bool {
	ok, err := path.Match(strings.NewReplacer(`\`, `\\`, "[", `\[`).Replace(pattern), name)
	return ok && err == nil && name != ""
}

func (t *Target) setKnownHosts(q Query, values settings, expand expander) {
	user := values.first("userknownhostsfile")
	switch {
	case q.KnownHostsFile != "":
		t.KnownHosts = []string{q.KnownHostsFile}
	case user == "":
		t.KnownHosts = []string{filepath.Join(q.Home, ".ssh", "known_hosts"), filepath.Join(q.Home, ".ssh", "known_hosts2")}
	case user == "none":
		t.KnownHosts = []string{os.DevNull}
	default:
		for _, file := range splitWords(user) {
			t.KnownHosts = append(t.KnownHosts, expand.ownPath(file))
		}
	}
	system := cmp.Or(values.first("globalknownhostsfile"), "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
	if system != "none" {
		t.KnownHosts = append(t.KnownHosts, splitWords(system)...)
	}
}

// setWay sets what leads to the host: a command or jump hosts. ssh -G tells of one only.
func (t *Target) setWay(q Query, values settings, expand expander) error {
	if command := values.first("proxycommand"); command != "" && command != "none" {
		if values.first("proxyusefdpass") == "yes" {
			err := fmt.Errorf("%s: ProxyUseFdpass is not supported", q.ConfigFile)
			return exit.WithHint(err, "use a ProxyCommand that passes the bytes on itself, as nc does")
		}
		t.ProxyCommand = expand.tokens.Replace(command)
	}
	value := values.first("proxyjump")
	if value == "" || value == "none" {
		return nil
	}
	for _, word := range strings.Split(value, ",") {
		jump, err := parseHop(strings.TrimSpace(word))
		if err != nil {
			return fmt.Errorf("%s: ProxyJump %q: %w", q.ConfigFile, value, err)
		}
		t.Jumps = append(t.Jumps, jump)
	}
	return nil
}

// Values of Target.StrictKeys.
const (
	AcceptNew = "accept-new" // a new key is recorded
	Unchecked = "no"         // ssh would accept any key
)

// strictness has the spellings of these values; ssh -G prints the value no as false.
var strictness = map[string]string{"accept-new": AcceptNew, "no": Unchecked, "off": Unchecked, "false": Unchecked}

// sshHome returns the home that ssh uses for ~: that of the password file.
var sshHome = sync.OnceValue(func() string {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ssh", "-G", "-F", os.DevNull, "--", "localhost").Output()
	if err != nil {
		return ""
	}
	file, _, _ := strings.Cut(parseSettings(out).first("userknownhostsfile"), " ")
	if home, found := strings.CutSuffix(file, "/.ssh/known_hosts"); found {
		return home
	}
	return ""
})

// PasswordHome returns the home of this user by the password file, or by the directory that
// stands behind it; "": it is not known.
func PasswordHome() string {
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		return u.HomeDir
	}
	return sshHome()
}

// CheckName refuses names that ssh could take for an option, and names with characters
// that no name has. what is "host" or "user".
func CheckName(what, name string) error {
	if strings.HasPrefix(name, "-") {
		return fmt.Errorf("%s %q begins with -", what, name)
	}
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("/'\"`$;&|<>()\\", r) }
	if i := strings.IndexFunc(name, bad); i >= 0 {
		return fmt.Errorf("%s %q has a character that no name has", what, name)
	}
	if what == "host" && strings.Contains(name, "@") {
		return fmt.Errorf("host %q has a user in it", name)
	}
	return nil
}

// readSettings reads the common keywords of the configuration, for machines without an
// ssh. It does not support Match.
func readSettings(q Query) (settings, error) {
	data, err := os.ReadFile(q.ConfigFile)
	if errors.Is(err, os.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh configuration: %w", err)
	}
	parsed, err := ssh_config.Decode(bytes.NewReader(data))
	if err != nil {
		err = fmt.Errorf("read ssh configuration %s: %w", q.ConfigFile, err)
		return nil, exit.WithHint(err, "with OpenSSH's ssh installed, plx reads all of its configuration")
	}
	values := settings{}
	for _, key := range []string{
		"hostname", "user", "port", "identityfile", "proxyjump", "proxycommand", "userknownhostsfile",
		"hostkeyalias", "identitiesonly", "identityagent", "globalknownhostsfile", "connecttimeout",
		"certificatefile", "addressfamily", "stricthostkeychecking", "sendenv", "setenv", "forwardagent", "batchmode", "passwordauthentication", "kbdinteractiveauthentication", "proxyusefdpass",
	} {
		if values[key], err = parsed.GetAll(q.Host, key); err != nil {
			return nil, fmt.Errorf("ssh configuration: %s: %w", key, err)
		}
	}
	return values, nil
}
