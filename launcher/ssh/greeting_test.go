package ssh_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
)

// serving starts a TCP server that calls serve for each connection and then
// closes it. It returns the server's port.
func serving(t *testing.T, serve func(net.Conn)) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) // nothing was written
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(conn)
				_ = conn.Close() // the client may be gone
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// disconnect returns an SSH disconnect packet, as sent before encryption
// begins.
func disconnect(text string) []byte {
	message := gossh.Marshal(struct {
		Reason         uint32 `sshtype:"1"`
		Text, Language string
	}{2, text, ""})
	return packet(message)
}

// packet returns message as an SSH packet before encryption begins.
func packet(message []byte) []byte {
	padding := 16 - (len(message)+5)%8
	length := len(message) + 1 + padding
	return append([]byte{0, 0, byte(length >> 8), byte(length), byte(padding)}, append(message, make([]byte, padding)...)...)
}

// The error of a handshake that fails before the login has the server's
// greeting and the time limit. Its hint does not suggest a key, because keys
// play no role yet.
func TestFailedHandshakeReportsGreeting(t *testing.T) {
	says := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.WriteString(conn, text)    // the client may be gone
			_ = conn.(*net.TCPConn).CloseWrite() // as above
			_, _ = io.Copy(io.Discard, conn)     // wait until the client has read everything: an earlier close would discard data
		}
	}
	stalls := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.WriteString(conn, text) // the client may be gone
			_, _ = io.Copy(io.Discard, conn)  // wait until the client closes the connection
		}
	}
	const version = "SSH-2.0-x\r\n"
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		want  string
	}{
		{"closes", says(""), "EOF: the server has sent nothing"},
		{"stalls", stalls(""), "no connection within 1s: the server has sent nothing"},
		{"speaks HTTP", says("HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n"), `instead of an SSH greeting the server sent "HTTP/1.1 400 Bad Request"`},
		{"speaks without end", func(conn net.Conn) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(conn, strings.Repeat("x", 1000))
			}
		}, `overflow reading version string: instead of an SSH greeting the server sent "xxx`},
		{"refuses this machine", says("Not allowed at this time\r\n"), `EOF: instead of an SSH greeting the server sent "Not allowed at this time"`},
		{"stalls in its greeting", stalls("220 smtp.example.com"), `no connection within 1s: instead of an SSH greeting the server sent "220 smtp.example.com"`},
		{"closes after the version", says(version), "EOF: the server sent its greeting and nothing more"},
		{"closes after a line and the version", says("welcome\r\n" + version), "EOF: the server sent its greeting and nothing more"},
		{"stalls after the version", stalls(version), "no connection within 1s: the server sent its greeting and nothing more"},
		{"garbage after the version", says(version + "not ssh at all, and longer than a packet's head\r\n"), "invalid packet length"},
		{"ends it with words of a login", says(version + string(disconnect("unable to authenticate: too many authentication failures"))), "unable to authenticate"},
		{"no common algorithm", says(version + string(kexInit())), "its SSH server offers no key exchange that plx implements: none@example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			port := serving(t, c.serve)
			for _, key := range []bool{true, false} {
				home := t.TempDir()
				sshConfig(t, home, "ConnectTimeout 1\nIdentityAgent none\n")
				if key {
					writeFile(t, home+"/.ssh/id_ed25519", string(userKey(t)), 0o600)
				}
				ask := func(context.Context, string, bool, string) (string, error) { return "", errors.New("nobody is there") }
				for _, canPrompt := range []func(context.Context, string, bool, string) (string, error){nil, ask} {
					_, err := ssh.Dial(t.Context(), ssh.Config{Host: "127.0.0.1", Port: port, Home: home, Ask: canPrompt, RetryFor: 1})
					if err == nil {
						t.Fatal("it connects")
					}
					text, hint := err.Error(), hintOf(err)
					by, cure := transport.RefusedBy(err)
					if !strings.HasPrefix(text, "host 127.0.0.1: ") || !strings.Contains(text, c.want) || strings.Contains(text, "login refused") {
						t.Errorf("key %v: %s, want %q", key, text, c.want)
					}
					if strings.Contains(hint+cure, "ssh-copy-id") || by != "" {
						t.Errorf("key %v: %s; hint %q, refused by %q, cure %q", key, text, hint, by, cure)
					}
				}
			}
		})
	}
}

// If the SSH agent waits for its user, the error names the agent, not the
// host.
func TestHungSSHAgentIsReported(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent")
	listener, err := net.Listen("unix", socket) // the kernel accepts connections, but no agent replies
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // nothing was written
	port := serving(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	home := t.TempDir()
	sshConfig(t, home, "ConnectTimeout 1\nIdentityAgent "+socket+"\n")
	_, err = ssh.Dial(t.Context(), ssh.Config{Host: "127.0.0.1", Port: port, Home: home, RetryFor: 1})
	if want := "host 127.0.0.1: no connection within 1s: the SSH agent has not answered"; err == nil || err.Error() != want || strings.Contains(hintOf(err), "ssh-copy-id") {
		t.Errorf("%v, hint %q, want %s", err, hintOf(err), want)
	}
}

// If the login exceeds its time limit, the error says that the server had sent
// its key.
func TestLoginTimeoutIsReported(t *testing.T) {
	server := &gossh.ServerConfig{PublicKeyCallback: func(gossh.ConnMetadata, gossh.PublicKey) (*gossh.Permissions, error) {
		select {} // block until the other side closes the connection
	}}
	signer, err := gossh.ParsePrivateKey(userKey(t))
	if err != nil {
		t.Fatal(err)
	}
	server.AddHostKey(signer)
	port := serving(t, func(conn net.Conn) { _, _, _, _ = gossh.NewServerConn(conn, server) })
	home := t.TempDir()
	writeFile(t, home+"/.ssh/id_ed25519", string(userKey(t)), 0o600)
	sshConfig(t, home, "IdentityAgent none\n")
	_, err = ssh.Dial(t.Context(), ssh.Config{Host: "127.0.0.1", Port: port, Home: home, AcceptNewHostKeys: true, RetryFor: 1, DialAtMost: time.Second})
	if err == nil || !strings.Contains(err.Error(), "no connection within 1s: the server has sent its key, but the login has not finished") || strings.Contains(hintOf(err), "ssh-copy-id") {
		t.Errorf("%v, hint %q", err, hintOf(err))
	}
}

// kexInit returns the key exchange packet of a server that supports no
// algorithm of plx.
func kexInit() []byte {
	none := []string{"none@example.com"}
	message := gossh.Marshal(struct {
		Cookie                        [16]byte `sshtype:"20"`
		Kex, HostKeys                 []string
		CiphersIn, CiphersOut         []string
		MACsIn, MACsOut               []string
		CompressionIn, CompressionOut []string
		LanguagesIn, LanguagesOut     []string
		FirstKexFollows               bool
		Reserved                      uint32
	}{Kex: none, HostKeys: none, CiphersIn: none, CiphersOut: none, MACsIn: none, MACsOut: none, CompressionIn: none, CompressionOut: none})
	return packet(message)
}

// A server that accepts the user without authentication needs no key.
func TestLoginWithoutAuthentication(t *testing.T) {
	signer, err := gossh.ParsePrivateKey(userKey(t))
	if err != nil {
		t.Fatal(err)
	}
	config := &gossh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	port := serving(t, func(conn net.Conn) {
		_, channels, requests, err := gossh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		go gossh.DiscardRequests(requests)
		for c := range channels {
			_ = c.Reject(gossh.Prohibited, "") // the client may be gone
		}
	})
	home := t.TempDir()
	sshConfig(t, home, "IdentityAgent none\n")
	client, err := ssh.Dial(t.Context(), ssh.Config{Host: "127.0.0.1", Port: port, Home: home, AcceptNewHostKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
