// Package sshconfig returns the settings of the user's ssh configuration for a
// host.
//
//	target, err := sshconfig.Resolve(ctx, sshconfig.Query{Host: "gpu03", Home: home, ConfigFile: home + "/.ssh/config"})
//
// If ssh is installed, the package runs ssh -G, which reads the configuration
// of the user and of the system. Otherwise it parses the common keywords of
// the user's configuration. It makes no network connection.
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

// Query describes a host as the user names it on the command line or in the
// resource file. Host, Home and ConfigFile are required.
type Query struct {
	Host           string // name of the host, or an alias of the ssh configuration
	User           string // login name; empty: User of the ssh configuration, else the local user
	Port           int    // port to connect to; 0: Port of the ssh configuration, else 22
	Home           string // directory that replaces "~" in file names
	ConfigFile     string // path of the user's ssh configuration; a missing file is no error
	KnownHostsFile string // path of the known_hosts file; empty: UserKnownHostsFile of the ssh configuration, else <Home>/.ssh/known_hosts
}

// Target holds the settings that the ssh configuration has for one host.
type Target struct {
	Address        string // host:port to connect to
	HostName       string // name or address to connect to: HostName of the ssh configuration, else Query.Host
	Port           int
	User           string
	KeyAlias       string        // HostKeyAlias, the host's name in known_hosts; empty: not set
	Identities     []string      // key files that IdentityFile names; the default key files are in Defaults
	Certificates   []string      // certificate files that CertificateFile names
	Defaults       []string      // default key files such as ~/.ssh/id_ed25519, which may be missing
	IdentitiesOnly bool          // true to offer, of the SSH agent's keys, only those that a key file or certificate names
	Agent          string        // path of the SSH agent's socket; empty: do not use an SSH agent
	KnownHosts     []string      // known_hosts files to read; new keys are added to the first
	Env            []string      // NAME=VALUE from SendEnv and SetEnv, sent to the server for each command
	ForwardAgent   string        // socket of the SSH agent to forward to the host; empty: forward no agent
	StrictKeys     string        // value of StrictHostKeyChecking: AcceptNew, Unchecked, or "" for any other value
	Jumps          []Hop         // jump hosts in the order in which to connect to them
	ProxyCommand   string        // shell command whose stdin and stdout lead to the host; empty: none
	Network        string        // network for package net: tcp, tcp4 or tcp6
	NoPassword     bool          // true if the configuration forbids password authentication
	NoInteractive  bool          // true if the configuration forbids keyboard-interactive authentication
	Connect        time.Duration // limit for reaching the server in one attempt, without the handshake; never 0
	Timeout        time.Duration // limit for one attempt, including the SSH handshake; never 0
}

// Hop is a jump host.
type Hop struct {
	User, Host string // User is empty if the configuration names none
	Port       int    // port of the jump host; 0: Port of the ssh configuration for it, else 22
}

// Limits for one connection attempt if the ssh configuration sets no
// ConnectTimeout. DefaultConnect limits the time to reach the server.
// DefaultTimeout also includes the SSH handshake, for which a busy server may
// need longer.
const (
	DefaultConnect = 15 * time.Second
	DefaultTimeout = time.Minute
)

// resolveTimeout limits one run of ssh -G, which may itself run commands that
// Match exec names.
const resolveTimeout = 10 * time.Second

// Resolve returns the settings of the ssh configuration for the host in q. It
// runs ssh -G, or parses q.ConfigFile itself if ssh is not installed.
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

// settings holds the values of the ssh configuration for one host. Its keys
// are the keywords in lower case.
type settings map[string][]string

func (s settings) first(key string) string {
	if len(s[key]) == 0 {
		return ""
	}
	return s[key][0]
}

// askSSH runs ssh -G and returns the settings that it prints.
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
		// With -F, ssh reads only the given file, so this file includes the
		// configurations of the user and of the system. A pipe instead of a
		// file would not work, because ssh may read it twice.
		both := fmt.Sprintf("Include %q\nInclude %q\n", q.ConfigFile, systemFile)
		if err := os.WriteFile(file, []byte(both), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("read ssh configuration: %w", err), folder.Remove())
		}
		// If the removal fails, that is harmless: the file contains only the
		// names of the two configuration files.
		defer func() { _ = folder.Remove() }()
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
	if ctx.Err() != nil { // err reports only that ssh was killed; the cause of ctx is the timeout
		return nil, fmt.Errorf("read ssh configuration %s: %s -G: %w", q.ConfigFile, binary, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("read ssh configuration %s: %s -G: %w: %s", q.ConfigFile, binary, err, strings.TrimSpace(stderr.String()))
	}
	return parseSettings(out), nil
}

// systemFile is the ssh configuration for all users of the machine. It is a
// variable for tests.
var systemFile = "/etc/ssh/ssh_config"

// parseSettings parses the output of ssh -G, which has one "keyword value" per
// line.
func parseSettings(out []byte) settings {
	values := settings{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		key = strings.ToLower(key)
		values[key] = append(values[key], value)
	}
	return values
}

// newTarget builds a Target from the settings of the ssh configuration. Fields
// that are set in q take precedence.
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

// networks maps the values of AddressFamily to the network names of package
// net.
var networks = map[string]string{"": "tcp", "any": "tcp", "inet": "tcp4", "inet6": "tcp6"}

func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// usualKeys lists the default key files that ssh offers if they exist. plx
// offers the first plxKeys of them, in this order. Keys of FIDO tokens (_sk)
// work only through the SSH agent.
var usualKeys = []string{"id_ed25519", "id_ecdsa", "id_rsa", "id_ecdsa_sk", "id_ed25519_sk", "id_xmss", "id_dsa"}

const plxKeys = 5

// setKeys sets the key files, the certificates and the SSH agent. ssh -G lists
// the default key files together with those that IdentityFile names; setKeys
// separates them. If IdentityFile names other keys, a default key file is used
// only if ssh -G lists it too.
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

// setForward sets the SSH agent to forward. The parameter value is the value
// of the keyword ForwardAgent: yes, no, or the path of a socket.
func (t *Target) setForward(value string, expand expander) {
	switch strings.ToLower(value) {
	case "", "no", "false":
	case "yes", "true":
		// ForwardAgent yes forwards the agent at $SSH_AUTH_SOCK even if
		// IdentityAgent is none.
		t.ForwardAgent = cmp.Or(t.Agent, os.Getenv("SSH_AUTH_SOCK"))
	default:
		t.ForwardAgent = expand.path(value)
	}
}

// environment returns the variables to send to the server, which may ignore
// them: variables in own that match a pattern of SendEnv, and all variables of
// SetEnv.
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

// matches reports whether name matches a pattern of SendEnv, in which only *
// and ? are special.
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

// setWay sets how to reach the host: through a ProxyCommand or through jump
// hosts. ssh -G prints at most one of these settings.
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
	AcceptNew = "accept-new" // accept the key of an unknown host and record it
	Unchecked = "no"         // ssh would accept any host key; plx still checks the key
)

// strictness maps the spellings of StrictHostKeyChecking to AcceptNew or
// Unchecked. ssh -G prints the value no as false.
var strictness = map[string]string{"accept-new": AcceptNew, "no": Unchecked, "off": Unchecked, "false": Unchecked}

// sshHome returns the home directory that ssh substitutes for "~", which comes
// from the password database. It takes the directory from the output of ssh
// -G. If ssh -G fails, it returns "".
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

// PasswordHome returns this user's home directory from the password database.
// If Go cannot read the database, it returns the directory that ssh uses for
// "~". It returns "" if neither is known.
func PasswordHome() string {
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		return u.HomeDir
	}
	return sshHome()
}

// CheckName returns an error for a name that ssh could take for an option. It
// also returns an error for a name with a character that occurs in no host or
// user name. The parameter what is "host" or "user".
func CheckName(what, name string) error {
	if strings.HasPrefix(name, "-") {
		return fmt.Errorf("%s %q begins with -", what, name)
	}
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("/'\"`$;&|<>()\\", r) }
	if i := strings.IndexFunc(name, bad); i >= 0 {
		return fmt.Errorf("%s %q contains an invalid character", what, name)
	}
	if what == "host" && strings.Contains(name, "@") {
		return fmt.Errorf("host %q contains a user name", name)
	}
	return nil
}

// readSettings parses the common keywords of the ssh configuration itself, for
// machines without ssh. It does not support Match.
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
