package ssh_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh"
)

// startAsking starts an SSH server that accepts logins by config, and returns
// a client configuration for it.
func startAsking(t *testing.T, config *gossh.ServerConfig) ssh.Config {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	config.AddHostKey(key)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }() // the client ended it
				server, channels, requests, err := gossh.NewServerConn(conn, config)
				if err != nil {
					return // the login was refused
				}
				go gossh.DiscardRequests(requests)
				for channel := range channels {
					_ = channel.Reject(gossh.Prohibited, "") // none is opened
				}
				_ = server.Wait() // it ended
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // nothing else does
		all.Wait()
	})
	home := newHome(t)
	address := listener.Addr().(*net.TCPAddr)
	writeFile(t, knownHosts(home), line(address.String(), key.PublicKey()), 0o600)
	t.Setenv("SSH_AUTH_SOCK", "")
	return ssh.Config{Host: "127.0.0.1", Port: address.Port, Home: home, User: "alice"}
}

// user answers each question with the next of its answers.
type user struct {
	answers []string
	asked   []string
	refused []string
}

func (u *user) ask(_ context.Context, question string, _ bool, refused string) (string, error) {
	u.asked, u.refused = append(u.asked, question), append(u.refused, refused)
	if len(u.answers) == 0 {
		return "", errors.New("no answer was given")
	}
	answer := u.answers[0]
	u.answers = u.answers[1:]
	return answer, nil
}

var errWrong = errors.New("wrong")

// A server that accepts no key prompts for a password or by
// keyboard-interactive. If no user can be prompted, or the ssh configuration
// forbids it, the login is refused.
func TestPasswordPrompts(t *testing.T) {
	password := func() *gossh.ServerConfig {
		return &gossh.ServerConfig{PasswordCallback: func(_ gossh.ConnMetadata, given []byte) (*gossh.Permissions, error) {
			if string(given) != "secret" {
				return nil, errWrong
			}
			return nil, nil
		}}
	}
	challenge := func() *gossh.ServerConfig {
		return &gossh.ServerConfig{KeyboardInteractiveCallback: func(_ gossh.ConnMetadata, ask gossh.KeyboardInteractiveChallenge) (*gossh.Permissions, error) {
			answers, err := ask("", "Two steps", []string{"Password: ", "Code: "}, []bool{false, true})
			if err != nil || strings.Join(answers, " ") != "secret 42" {
				return nil, errWrong
			}
			return nil, nil
		}}
	}
	for name, c := range map[string]struct {
		server  *gossh.ServerConfig
		config  string
		answers []string
		asked   string
		fails   bool
	}{
		"password":      {server: password(), answers: []string{"secret"}, asked: "password of alice on the hosts"},
		"a second try":  {server: password(), answers: []string{"typo", "secret"}, asked: "password of alice on the hosts"},
		"wrong":         {server: password(), answers: []string{"a", "b", "c", "secret"}, fails: true},
		"none is given": {server: password(), fails: true},
		"own questions": {server: challenge(), answers: []string{"secret", "42"}, asked: "Two steps: alice on the hosts: Password: "},
		"BatchMode":     {server: password(), answers: []string{"secret"}, config: "BatchMode yes\n", fails: true},
		"no password":   {server: password(), answers: []string{"secret"}, config: "PasswordAuthentication no\n", fails: true},
		"no questions":  {server: challenge(), answers: []string{"secret", "42"}, config: "KbdInteractiveAuthentication no\n", fails: true},
		"no key either": {server: password(), answers: []string{"secret"}, config: "IdentityFile none\n", asked: "password of alice"},
		"a server's Kerberos": {server: &gossh.ServerConfig{GSSAPIWithMICConfig: &gossh.GSSAPIWithMICConfig{
			AllowLogin: func(gossh.ConnMetadata, string) (*gossh.Permissions, error) { return nil, errWrong }, Server: noKerberos{}}}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := startAsking(t, c.server)
			sshConfig(t, cfg.Home, c.config)
			u := &user{answers: c.answers}
			cfg.Ask = u.ask
			client, err := ssh.Dial(t.Context(), cfg)
			if err == nil {
				_ = client.Close() // only the result of the dial matters
			}
			if (err != nil) != c.fails {
				t.Errorf("dial: %v", err)
			}
			if c.asked != "" && (len(u.asked) == 0 || !strings.HasPrefix(u.asked[0], c.asked)) {
				t.Errorf("asked %q, want %q", u.asked, c.asked)
			}
			if name == "a second try" && strings.Join(u.refused, ",") != ",typo" {
				t.Errorf("refused answers: %q", u.refused)
			}
			if name == "a server's Kerberos" && (!strings.Contains(err.Error(), "the server accepts: gssapi-with-mic") || !strings.Contains(hintOf(err), "plx cannot log in by Kerberos (GSSAPI), as this host may want: let ssh do it, --via 'ssh")) {
				t.Errorf("%v, hint %q", err, hintOf(err))
			}
			if c.fails && strings.Contains(hintOf(err), "ssh-copy-id") { // these servers take no key
				t.Errorf("%v, hint %q", err, hintOf(err))
			}
			cfg.Ask = nil
			if client, err := ssh.Dial(t.Context(), cfg); err == nil {
				t.Errorf("without a user: logged in, close: %v", client.Close())
			}
		})
	}
}

// noKerberos is a GSSAPI server that accepts no login.
type noKerberos struct{}

func (noKerberos) AcceptSecContext([]byte) ([]byte, string, bool, error) {
	return nil, "", false, errWrong
}
func (noKerberos) VerifyMIC([]byte, []byte) error { return errWrong }
func (noKerberos) DeleteSecContext() error        { return nil }
