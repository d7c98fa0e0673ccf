package ssh

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plx-run/plx/launcher/ssh/sshconfig"
	gossh "golang.org/x/crypto/ssh"
)

// Config tells which host to dial and how. Only Host is required. Dial keeps its own
// copy.
type Config struct {
	// User, Host and Port are as in the resource file. Host may be an alias of the
	// ssh configuration. Empty User, zero Port: those of the configuration, then the
	// local user and 22.
	User, Host string
	Port       int

	// Home is ~ in keys, configuration and known_hosts. Empty: $HOME. The password
	// file is not read.
	Home string
	// ConfigFile is the ssh configuration. Empty: <Home>/.ssh/config. A missing file
	// counts as an empty one.
	ConfigFile string
	// KnownHostsFile has the keys of hosts. Empty: UserKnownHostsFile of the
	// configuration, then <Home>/.ssh/known_hosts.
	KnownHostsFile string
	// AcceptNewHostKeys records the key of a host that has none on record.
	AcceptNewHostKeys bool

	// Signers and HostKey replace the configuration, the agent and known_hosts: only
	// these keys are offered, and only this host key is accepted. Set both or none.
	Signers []gossh.Signer
	HostKey gossh.PublicKey

	// Notice receives one-line notices for the user, without newline. It may be
	// called from several goroutines at once. Nil drops them.
	Notice func(string)

	// DialTimeout bounds one attempt to connect, with handshake and authentication,
	// for each hop. 0: ConnectTimeout of the configuration, then 15 s.
	DialTimeout time.Duration
	// RetryFor bounds the attempts that follow one which the server refused for load.
	// 0: 30 s.
	RetryFor time.Duration
	// KeepaliveEvery is the time between two keepalive requests. 0: 5 s.
	KeepaliveEvery time.Duration
	// DeadAfter is how long the host may send nothing before the connection counts as
	// lost. It is at least KeepaliveEvery. 0: 20 s, so that a dead host is noticed
	// within 30 s.
	DeadAfter time.Duration
	// Sessions is how many commands and copies run at once on the connection; the
	// others wait. 0: 8, since sshd allows 10.
	Sessions int
}

// validate refuses impossible values and fills in the defaults.
func (c *Config) validate() error {
	if err := sshconfig.CheckName("host", c.Host); err != nil {
		return err
	}
	if c.Host == "" {
		return errors.New("host is empty")
	}
	if err := sshconfig.CheckName("user", c.User); err != nil {
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
