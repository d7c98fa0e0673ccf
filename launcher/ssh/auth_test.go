package ssh_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plx-run/plx/launcher/ssh"
)

// emptyHome returns a home directory whose known_hosts lists the server and
// that has no key.
func emptyHome(t *testing.T, server *sshd) string {
	t.Helper()
	home := newHome(t, server)
	if err := os.Remove(filepath.Join(home, ".ssh", "id_ed25519")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	return home
}

func sshConfig(t *testing.T, home, text string) {
	t.Helper()
	writeFile(t, filepath.Join(home, ".ssh", "config"), text, 0o600)
}

// startAgent starts an SSH agent that holds keys, and returns its socket.
func startAgent(t *testing.T, keys ...[]byte) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, key := range keys {
		private, err := gossh.ParseRawPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
			t.Fatal(err)
		}
	}
	return serveAgent(t, ring)
}

// serveAgent serves an SSH agent on a new socket and returns the path of the
// socket.
func serveAgent(t *testing.T, ring agent.Agent) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // nothing else closes it
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = agent.ServeAgent(ring, conn) // io.EOF when the client is done
				_ = conn.Close()
			}()
		}
	}()
	return socket
}

func TestLogin(t *testing.T) {
	server := startSSHD(t, "MaxAuthTries 6")
	locked := sync.OnceValue(func() string { // computed once, since it is slow under the race detector
		private, err := gossh.ParseRawPrivateKey(userKey(t))
		if err != nil {
			t.Fatal(err)
		}
		return lockedPEM(t, private, []byte("secret"))
	})
	cases := []struct {
		name string
		set  func(t *testing.T, home string)
		fail string // in the error; empty for success
		hint string
	}{
		{name: "default key", set: func(t *testing.T, home string) {
			writeFile(t, filepath.Join(home, ".ssh", "id_ed25519"), string(userKey(t)), 0o600)
		}},
		{name: "IdentityFile", set: func(t *testing.T, home string) {
			writeFile(t, filepath.Join(home, "keys", "mine"), string(userKey(t)), 0o600)
			sshConfig(t, home, "IdentityFile ~/keys/mine\n")
		}},
		{name: "second IdentityFile", set: func(t *testing.T, home string) {
			writeKey(t, filepath.Join(home, "other"), nil)
			writeFile(t, filepath.Join(home, "mine"), string(userKey(t)), 0o600)
			sshConfig(t, home, "IdentityFile ~/other\nIdentityFile %d/mine\n")
		}},
		{name: "agent", set: func(t *testing.T, _ string) {
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, userKey(t)))
		}},
		{name: "IdentityAgent", set: func(t *testing.T, home string) {
			sshConfig(t, home, "IdentityAgent "+startAgent(t, userKey(t))+"\n")
		}},
		{name: "IdentityFile before an agent full of keys", set: func(t *testing.T, home string) {
			var keys [][]byte
			for range 9 {
				key, _ := makeKey(nil)
				keys = append(keys, key)
			}
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, keys...))
			writeFile(t, filepath.Join(home, "mine"), string(userKey(t)), 0o600)
			sshConfig(t, home, "IdentityFile ~/mine\n")
		}},
		{name: "locked file opened by the agent", set: func(t *testing.T, home string) {
			writeFile(t, filepath.Join(home, "mine"), locked(), 0o600)
			sshConfig(t, home, "IdentityFile ~/mine\nIdentitiesOnly yes\n")
			other, _ := makeKey(nil)
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, other, userKey(t)))
		}},
		{name: "locked file", set: func(t *testing.T, home string) {
			writeFile(t, filepath.Join(home, ".ssh", "id_ed25519"), locked(), 0o600)
		}, fail: "passphrase", hint: "ssh-add"},
		{name: "no key at all", set: func(*testing.T, string) {}, fail: "no key", hint: "authorized_keys"},
		{name: "wrong key", set: func(t *testing.T, home string) {
			writeKey(t, filepath.Join(home, ".ssh", "id_ed25519"), nil)
		}, fail: ".ssh/id_ed25519", hint: "authorized_keys"},
		{name: "missing IdentityFile", set: func(t *testing.T, home string) {
			sshConfig(t, home, "IdentityFile ~/none\n")
		}, fail: "/none", hint: "authorized_keys"},
		{name: "not the agent's with IdentitiesOnly", set: func(t *testing.T, home string) {
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, userKey(t)))
			writeKey(t, filepath.Join(home, "mine"), nil)
			sshConfig(t, home, "IdentityFile ~/mine\nIdentitiesOnly yes\n")
		}, fail: "/mine", hint: "authorized_keys"},
		{name: "dead agent", set: func(t *testing.T, home string) {
			t.Setenv("SSH_AUTH_SOCK", filepath.Join(home, "no-agent"))
		}, fail: "no-agent", hint: "authorized_keys"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			home := emptyHome(t, server)
			c.set(t, home)
			client, err := ssh.Dial(t.Context(), server.config(home))
			if err == nil {
				_ = client.Close() // only the result of the dial matters
			}
			switch {
			case c.fail == "" && err != nil:
				t.Errorf("dial: %v", err)
			case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail) || !strings.Contains(hintOf(err), c.hint)):
				t.Errorf("dial: %v, hint %q, want %q, %q", err, hintOf(err), c.fail, c.hint)
			}
		})
	}
}

// A login works with default keys of other types than ed25519, both if ssh -G
// and if plx's own parser reads the configuration.
func TestLoginUsesOtherDefaultKeys(t *testing.T) {
	home := t.TempDir()
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]gossh.PublicKey{
		"id_rsa":   rsaKey(t, filepath.Join(home, "id_rsa")),
		"id_ecdsa": writePrivate(t, filepath.Join(home, "id_ecdsa"), curve),
	}
	authorized := filepath.Join(home, "authorized")
	writeFile(t, authorized, string(gossh.MarshalAuthorizedKey(keys["id_rsa"]))+string(gossh.MarshalAuthorizedKey(keys["id_ecdsa"])), 0o600)
	server := startSSHD(t, "AuthorizedKeysFile "+authorized)
	for name := range keys {
		for way, path := range map[string]string{"as ssh tells it": os.Getenv("PATH"), "without ssh": t.TempDir()} {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Setenv("PATH", path)
				user := emptyHome(t, server)
				writeFile(t, filepath.Join(user, ".ssh", name), readFile(t, filepath.Join(home, name)), 0o600)
				dial(t, server.config(user))
			})
		}
	}
}

func TestLoginWithCertificate(t *testing.T) {
	home := t.TempDir()
	public := writeKey(t, filepath.Join(home, ".ssh", "id_ed25519"), nil)
	authorityPEM, authority := makeKey(nil)
	signer, err := gossh.ParsePrivateKey(authorityPEM)
	if err != nil {
		t.Fatal(err)
	}
	cert := &gossh.Certificate{Key: public, CertType: gossh.UserCert, ValidPrincipals: []string{"root", "plx"}, ValidBefore: gossh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, signer); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(home, ".ssh", "id_ed25519-cert.pub"), string(gossh.MarshalAuthorizedKey(cert)), 0o600)
	trusted, principals := filepath.Join(home, "ca.pub"), filepath.Join(home, "principals")
	writeFile(t, trusted, string(gossh.MarshalAuthorizedKey(authority)), 0o600)
	writeFile(t, principals, "plx\n", 0o600)
	server := startSSHD(t, "TrustedUserCAKeys "+trusted, "AuthorizedPrincipalsFile "+principals)
	writeFile(t, knownHosts(home), line(server.address(), server.hostKey), 0o600)
	t.Setenv("SSH_AUTH_SOCK", "")
	dial(t, server.config(home))
}
