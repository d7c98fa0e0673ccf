package ssh_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/ssh"
)

// sshd is an OpenSSH server on the loopback interface with its own keys and
// home directory.
type sshd struct {
	home    string // HOME of its sessions; without shell start-up files
	port    int
	pid     int
	hostKey gossh.PublicKey
	log     *syncBuffer
}

// startSSHD starts an OpenSSH server, with additional lines in its
// configuration, until the test ends. Clients whose home is newHome(t, server)
// can log in.
func startSSHD(t *testing.T, lines ...string) *sshd {
	t.Helper()
	binary := findSSHD(t)
	folder := t.TempDir()
	s := &sshd{home: t.TempDir(), port: freePort(t), log: &syncBuffer{}}
	s.hostKey = writeKey(t, filepath.Join(folder, "host_ed25519"), nil)
	// The given lines come first, because sshd uses the first value of a
	// keyword.
	config := strings.Join(lines, "\n") + fmt.Sprintf(`
ListenAddress 127.0.0.1
Port %d
HostKey %s/host_ed25519
AuthorizedKeysFile %s
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
SetEnv HOME=%s
`, s.port, folder, authorizedFile(t), s.home)
	if !strings.Contains(config, "Subsystem") {
		config += "Subsystem sftp internal-sftp\n"
	}
	file := filepath.Join(folder, "sshd_config")
	writeFile(t, file, config, 0o600)
	cmd := exec.Command(binary, "-D", "-e", "-f", file)
	cmd.Stderr = s.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // by the signal
		if t.Failed() {
			t.Logf("sshd: %s", s.log.String())
		}
	})
	awaitPort(t, s.port)
	return s
}

// findSSHD returns the path of OpenSSH's server. Without one it skips the test,
// which fails in CI; with -short it always skips.
func findSSHD(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real sshd")
	}
	binary, err := exec.LookPath("/usr/sbin/sshd")
	if err == nil && os.Getuid() == 0 {
		err = os.MkdirAll("/run/sshd", 0o755)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no sshd: %v", err)
		}
		t.Skipf("needs OpenSSH's sshd (package openssh-server): %v", err)
	}
	return binary
}

// config returns a client configuration for the server that uses the given
// home directory.
func (s *sshd) config(home string) ssh.Config {
	return ssh.Config{Host: "127.0.0.1", Port: s.port, Home: home}
}

// address returns the name of the server in known_hosts.
func (s *sshd) address() string { return "[127.0.0.1]:" + strconv.Itoa(s.port) }

// newHome returns a home directory with a key that all test servers accept.
// Its known_hosts lists the given servers.
func newHome(t *testing.T, servers ...*sshd) string {
	t.Helper()
	home := t.TempDir()
	writeFile(t, filepath.Join(home, ".ssh", "id_ed25519"), string(userKey(t)), 0o600)
	var known strings.Builder
	for _, s := range servers {
		known.WriteString(s.address() + " " + string(gossh.MarshalAuthorizedKey(s.hostKey)))
	}
	writeFile(t, knownHosts(home), known.String(), 0o600)
	return home
}

func knownHosts(home string) string { return filepath.Join(home, ".ssh", "known_hosts") }

// userKey is the private key, in PEM, that all servers of a test process accept.
var userKeys = sync.OnceValues(func() ([]byte, gossh.PublicKey) { return makeKey(nil) })

func userKey(t *testing.T) []byte {
	t.Helper()
	private, _ := userKeys()
	return private
}

func authorizedFile(t *testing.T) string {
	t.Helper()
	_, public := userKeys()
	file := filepath.Join(t.TempDir(), "authorized_keys")
	writeFile(t, file, string(gossh.MarshalAuthorizedKey(public)), 0o600)
	return file
}

// makeKey returns a new ed25519 key, encrypted if passphrase is not empty.
func makeKey(passphrase []byte) ([]byte, gossh.PublicKey) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // the system has no randomness
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		panic(err)
	}
	var block *pem.Block
	if passphrase == nil {
		block, err = gossh.MarshalPrivateKey(private, "")
	} else {
		block, err = gossh.MarshalPrivateKeyWithPassphrase(private, "", passphrase)
	}
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(block), signer.PublicKey()
}

// lockedPEM returns the key in PEM format, encrypted with the passphrase.
func lockedPEM(t *testing.T, private any, passphrase []byte) string {
	t.Helper()
	// the SSH agent needs a pointer to the key, and PEM encoding the key
	// itself
	if key, is := private.(*ed25519.PrivateKey); is {
		private = *key
	}
	block, err := gossh.MarshalPrivateKeyWithPassphrase(private, "", passphrase)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func writeKey(t *testing.T, path string, passphrase []byte) gossh.PublicKey {
	t.Helper()
	private, public := makeKey(passphrase)
	writeFile(t, path, string(private), 0o600)
	return public
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }() // only the port number is needed
	return listener.Addr().(*net.TCPAddr).Port
}

func awaitPort(t *testing.T, port int) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			_ = conn.Close() // only the result of the dial matters
			return
		}
	}
	t.Fatal("sshd did not start to listen")
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func dial(t *testing.T, cfg ssh.Config) *ssh.Client {
	t.Helper()
	client, err := ssh.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // the suite checks its error
	return client
}

// output runs a command that must succeed.
func output(t *testing.T, client *ssh.Client, command string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := client.Run(t.Context(), command, nil, &stdout, &stderr); err != nil {
		t.Fatalf("%s: %v: %s", command, err, stderr.String())
	}
	return stdout.String()
}
