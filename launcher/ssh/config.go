package ssh

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// Config says which host to reach and how. The zero value of every field but
// Host is usable. Dial keeps its own copy.
type Config struct {
	// User, Host and Port as the resource file has them. Host may be an alias of
	// the ssh configuration. An empty User or a zero Port is taken from there,
	// then from the local user and 22.
	User, Host string
	Port       int

	// Home is what ~ means in keys, configuration and known_hosts; empty for
	// $HOME. The password file is never asked.
	Home string
	// ConfigFile is empty for <Home>/.ssh/config. A missing file is an empty one.
	ConfigFile string
	// KnownHostsFile is empty for UserKnownHostsFile of the configuration, then
	// <Home>/.ssh/known_hosts.
	KnownHostsFile string
	// AcceptNewHostKeys records the key of a host of which no key is known.
	AcceptNewHostKeys bool

	// Signers and HostKey, where either is set, replace configuration files,
	// agent and known_hosts: only these keys are offered, and only this host key
	// is accepted. Both must then be set.
	Signers []gossh.Signer
	HostKey gossh.PublicKey

	// Notice receives one-line notices for the user, without newline. It may be
	// called from several goroutines at once. Nil drops them.
	Notice func(string)

	// DialTimeout bounds one attempt to connect, handshake and authentication
	// included, for each hop. 15 s, or ConnectTimeout of the configuration.
	DialTimeout time.Duration
	// RetryFor bounds the time in which attempts are repeated that the server
	// refused for load. 30 s.
	RetryFor time.Duration
	// KeepaliveEvery is the pause between two keepalive requests. 5 s.
	KeepaliveEvery time.Duration
	// DeadAfter is how long nothing may come from the host before the connection
	// counts as lost. At least KeepaliveEvery. 20 s, so that a dead host is
	// noticed within 30 s.
	DeadAfter time.Duration
	// Sessions is how many commands and copies run at once on the connection;
	// more wait. 8, for sshd allows 10.
	Sessions int
}

// validate rejects what cannot be meant and fills the defaults.
func (c *Config) validate() error {
	if err := checkName("host", c.Host); err != nil {
		return err
	}
	if c.Host == "" {
		return errors.New("host is empty")
	}
	if err := checkName("user", c.User); err != nil {
		return err
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("host %s: port %d is not between 1 and 65535", c.Host, c.Port)
	}
	if (len(c.Signers) > 0) != (c.HostKey != nil) {
		return fmt.Errorf("host %s: signers and host key go together", c.Host)
	}
	if err := c.fillHome(); err != nil {
		return err
	}
	c.fillTimes()
	return nil
}

func (c *Config) fillHome() error {
	if c.Home == "" {
		c.Home = os.Getenv("HOME")
	}
	if c.Home == "" && c.HostKey == nil {
		return fmt.Errorf("host %s: HOME is not set, so there is no place to look for keys and known hosts", c.Host)
	}
	if c.ConfigFile == "" {
		c.ConfigFile = filepath.Join(c.Home, ".ssh", "config")
	}
	return nil
}

func (c *Config) fillTimes() {
	fill := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	fill(&c.RetryFor, 30*time.Second)
	fill(&c.KeepaliveEvery, 5*time.Second)
	fill(&c.DeadAfter, 20*time.Second)
	c.DeadAfter = max(c.DeadAfter, c.KeepaliveEvery)
	if c.Sessions <= 0 {
		c.Sessions = 8
	}
	if c.Notice == nil {
		c.Notice = func(string) {}
	}
}

// defaultDialTimeout holds where neither Config nor ConnectTimeout says another.
const defaultDialTimeout = 15 * time.Second

// checkName keeps option injection and nonsense out of what is handed to ssh
// and to the resolver: a name that begins with "-" would be an option to ssh.
func checkName(what, name string) error {
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
