package ssh_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// The tests of this file check that plx supports what ssh supports in the
// user's configuration.

// authority is an SSH server that accepts only certificates of one certificate
// authority.
type authority struct {
	*sshd
	signer gossh.Signer
}

func startAuthority(t *testing.T) *authority {
	t.Helper()
	folder := t.TempDir()
	private, public := makeKey(nil)
	signer, err := gossh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, "ca.pub"), string(gossh.MarshalAuthorizedKey(public)), 0o600)
	writeFile(t, filepath.Join(folder, "principals"), "plx\n", 0o600)
	writeFile(t, filepath.Join(folder, "none"), "", 0o600)
	return &authority{startSSHD(t, "TrustedUserCAKeys "+folder+"/ca.pub", "AuthorizedPrincipalsFile "+folder+"/principals", "AuthorizedKeysFile "+folder+"/none"), signer}
}

// certify returns a certificate for the key, in the format of a -cert.pub
// file.
func (a *authority) certify(t *testing.T, key gossh.PublicKey, until time.Time) string {
	t.Helper()
	cert := &gossh.Certificate{Key: key, CertType: gossh.UserCert, ValidPrincipals: []string{"plx"}, ValidBefore: uint64(until.Unix())}
	if err := cert.SignCert(rand.Reader, a.signer); err != nil {
		t.Fatal(err)
	}
	return string(gossh.MarshalAuthorizedKey(cert))
}

// TestLoginToServerThatTrustsOnlyCertificates logs in with certificates from
// files and from the SSH agent.
func TestLoginToServerThatTrustsOnlyCertificates(t *testing.T) {
	server := startAuthority(t)
	tomorrow := time.Now().Add(24 * time.Hour)
	cases := []struct {
		name string
		set  func(t *testing.T, home string, key []byte, public gossh.PublicKey)
		fail string // in the error; empty for success
	}{
		{name: "CertificateFile and IdentityFile", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			writeFile(t, home+"/keys/mine", string(key), 0o600)
			writeFile(t, home+"/certs/mine", server.certify(t, public, tomorrow), 0o600)
			sshConfig(t, home, "IdentityFile ~/keys/mine\nCertificateFile ~/certs/mine\n")
		}},
		{name: "CertificateFile and a usual key", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			writeFile(t, home+"/.ssh/id_ed25519", string(key), 0o600)
			writeFile(t, home+"/certs/mine", server.certify(t, public, tomorrow), 0o600)
			sshConfig(t, home, "CertificateFile %d/certs/mine\n")
		}},
		{name: "CertificateFile and a key in the agent", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, key))
			writeFile(t, home+"/certs/mine", server.certify(t, public, tomorrow), 0o600)
			sshConfig(t, home, "CertificateFile ~/certs/mine\nIdentitiesOnly yes\n")
		}},
		{name: "beside a key that is in the agent only", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, key))
			writeFile(t, home+"/keys/mine.pub", string(gossh.MarshalAuthorizedKey(public)), 0o600)
			writeFile(t, home+"/keys/mine-cert.pub", server.certify(t, public, tomorrow), 0o600)
			sshConfig(t, home, "IdentityFile ~/keys/mine\nIdentitiesOnly yes\n")
		}},
		{name: "beside a usual key that is in the agent only", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			t.Setenv("SSH_AUTH_SOCK", startAgent(t, key))
			writeFile(t, home+"/.ssh/id_ed25519-cert.pub", server.certify(t, public, tomorrow), 0o600)
		}},
		{name: "several certificates of one key", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			writeFile(t, home+"/.ssh/id_ed25519", string(key), 0o600)
			writeFile(t, home+"/old", server.certify(t, public, time.Now().Add(-time.Hour)), 0o600)
			writeFile(t, home+"/new", server.certify(t, public, tomorrow), 0o600)
			sshConfig(t, home, "CertificateFile ~/old\nCertificateFile ~/new\n")
		}},
		{name: "expired", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			writeFile(t, home+"/.ssh/id_ed25519", string(key), 0o600)
			writeFile(t, home+"/old", server.certify(t, public, time.Now().Add(-time.Hour)), 0o600)
			sshConfig(t, home, "CertificateFile ~/old\n")
		}, fail: "/old: it expired on"},
		{name: "without its key", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			writeFile(t, home+"/.ssh/id_ed25519", string(userKey(t)), 0o600)
			writeFile(t, home+"/cert", server.certify(t, public, tomorrow), 0o600)
			sshConfig(t, home, "CertificateFile ~/cert\n")
		}, fail: "/cert: its key is neither in a file nor in the agent"},
		{name: "missing", set: func(t *testing.T, home string, key []byte, public gossh.PublicKey) {
			writeFile(t, home+"/.ssh/id_ed25519", string(key), 0o600)
			sshConfig(t, home, "CertificateFile ~/nowhere\n")
		}, fail: "/nowhere: there is no certificate in it"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			home := emptyHome(t, server.sshd)
			key, public := makeKey(nil)
			c.set(t, home, key, public)
			client, err := ssh.Dial(t.Context(), server.config(home))
			if err == nil {
				_ = client.Close() // only the result of the dial matters
			}
			if c.fail == "" && err != nil || c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
				t.Errorf("dial: %v, want %q", err, c.fail)
			}
		})
	}
}

// notices collects the messages that a client passes to Config.Notice.
type notices struct {
	mu  sync.Mutex
	all []string
}

func (n *notices) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, text)
}

func (n *notices) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.all, "\n")
}

// TestServersWithFewAlgorithms dials servers that support few algorithms. If a
// server supports only an insecure one, plx connects and prints a warning.
func TestServersWithFewAlgorithms(t *testing.T) {
	folder := t.TempDir()
	rsaKey(t, folder+"/rsa")
	cases := []struct {
		lines      []string
		warn, fail string // in a notice; in the error
		hint       string
	}{
		{lines: []string{"KexAlgorithms diffie-hellman-group16-sha512,diffie-hellman-group-exchange-sha256"}},
		{lines: []string{"KexAlgorithms diffie-hellman-group-exchange-sha256"}},
		{lines: []string{"KexAlgorithms diffie-hellman-group14-sha1", "Ciphers aes128-cbc,3des-cbc"}, warn: "diffie-hellman-group14-sha1, aes128-cbc"},
		{lines: []string{"KexAlgorithms diffie-hellman-group14-sha1,curve25519-sha256", "Ciphers 3des-cbc,aes256-ctr", "MACs hmac-sha1-96,hmac-sha2-512"}},
		{lines: []string{"HostKey " + folder + "/rsa", "HostKeyAlgorithms ssh-rsa"}, warn: "ssh-rsa"},
		{lines: []string{"KexAlgorithms sntrup761x25519-sha512@openssh.com"}, hint: "add curve25519-sha256 to KexAlgorithms in the host's sshd_config, or let ssh connect: --via 'ssh",
			fail: "its SSH server offers no key exchange that plx implements: sntrup761x25519-sha512@openssh.com"},
		{lines: []string{"MACs umac-128@openssh.com", "Ciphers aes128-ctr"}, fail: "umac-128@openssh.com", hint: "add hmac-sha2-256 to MACs in"},
	}
	for _, c := range cases {
		t.Run(strings.Join(c.lines, " "), func(t *testing.T) {
			server := startSSHD(t, c.lines...)
			var told notices
			cfg := server.config(newHome(t))
			cfg.AcceptNewHostKeys, cfg.Notice = true, told.add
			client, err := ssh.Dial(t.Context(), cfg)
			if err == nil {
				_ = client.Close() // only the result of the dial matters
			}
			if c.fail == "" && err != nil || c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail) || !strings.Contains(hintOf(err), c.hint)) {
				t.Errorf("dial: %v, hint %q, want %q", err, hintOf(err), c.fail)
			}
			if text := told.String(); !strings.Contains(text, c.warn) || strings.Contains(text, "not secure") != (c.warn != "") {
				t.Errorf("notices: %s", text)
			}
		})
	}
}

// TestHostNameKnownOnlyToGetent dials a host name that getent resolves and
// Go's resolver does not.
func TestHostNameKnownOnlyToGetent(t *testing.T) {
	server := startSSHD(t)
	home := newHome(t)
	folder := t.TempDir()
	writeFile(t, folder+"/getent", `#!/bin/sh
[ "$*" = "ahosts plx-test-name.invalid" ] || exit 2
echo "127.0.0.9       STREAM plx-test-name.invalid"
echo "127.0.0.9       DGRAM"
echo "127.0.0.1       STREAM"
`, 0o700)
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	writeFile(t, knownHosts(home), line("[plx-test-name.invalid]:"+strconv.Itoa(server.port), server.hostKey), 0o600)
	cfg := server.config(home)
	cfg.Host = "plx-test-name.invalid"
	dial(t, cfg)
	cfg.Host = "plx-other-name.invalid"
	_, err := ssh.Dial(t.Context(), cfg)
	var unknown *net.DNSError
	if !errors.As(err, &unknown) {
		t.Errorf("a name that nobody knows: %v", err)
	}
}

// TestCopyWithOtherSFTPDirectory copies a file to a server whose sftp starts
// in another directory than its commands.
func TestCopyWithOtherSFTPDirectory(t *testing.T) {
	other := filepath.Join(t.TempDir(), "deep", "deeper")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	server := startSSHD(t, "Subsystem sftp internal-sftp -d "+other)
	client := dial(t, server.config(newHome(t, server)))
	folder := t.TempDir()
	if err := client.Copy(t.Context(), strings.NewReader("text"), folder+"/file"); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, folder+"/file"); got != "text" {
		t.Errorf("the file has %q", got)
	}
}

// TestUnrecordableHostKeyIsAcceptedWithWarning dials with a known_hosts that
// cannot be written. plx accepts a new key with a warning, and refuses another
// key of the same host later.
func TestUnrecordableHostKeyIsAcceptedWithWarning(t *testing.T) {
	server := startSSHD(t)
	home := newHome(t)
	// Even root cannot write to this file, as if it were on a read-only file
	// system.
	file := "/proc/sys/kernel/ostype"
	if f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0); err == nil {
		_ = f.Close() // only the result of the dial matters
		t.Skip("needs a file that root cannot write")
	}
	var told notices
	cfg := server.config(home)
	cfg.AcceptNewHostKeys, cfg.Notice, cfg.KnownHostsFile = true, told.add, file
	for range 2 {
		dial(t, cfg)
	}
	if text := told.String(); strings.Count(text, "is accepted but not recorded") != 1 || !strings.HasPrefix(text, "warning: host 127.0.0.1: ") {
		t.Errorf("notices: %s", text)
	}
}

// TestProxyCommands connects to a server through several ProxyCommands.
func TestProxyCommands(t *testing.T) {
	server := startSSHD(t)
	folder := t.TempDir()
	// A stand-in for nc.
	writeFile(t, folder+"/carry", "#!/bin/bash\nexec 3<>\"/dev/tcp/$1/$2\" || exit 7\ncat <&3 & cat >&3\nkill $!\n", 0o700)
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	for name, c := range map[string]struct{ command, fail string }{
		"a command":             {command: "carry %h %p"},
		"a pipe of commands":    {command: "cat | carry %h %p"},
		"ssh -W":                {command: "ssh -q -F %d/gate -W %h:%p gate"},
		"one that fails":        {command: "sh -c 'echo no way to %h >&2; exit 3'", fail: "ended with exit status 3: no way to 127.0.0.1"},
		"one that is missing":   {command: "no-such-command %h", fail: "no-such-command"},
		"one that says rubbish": {command: "echo hello", fail: "ProxyCommand"},
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t, server)
			writeFile(t, home+"/gate", fmt.Sprintf("Host gate\nHostName 127.0.0.1\nPort %d\nIdentityFile %s/.ssh/id_ed25519\nUserKnownHostsFile %s\n", server.port, home, knownHosts(home)), 0o600)
			sshConfig(t, home, "ProxyCommand "+c.command+"\n")
			cfg := server.config(home)
			cfg.RetryFor = time.Nanosecond
			client, err := ssh.Dial(t.Context(), cfg)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("dial: %v, want %q", err, c.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() }) // closed below too
			if got := output(t, client, "echo hello"); got != "hello\n" {
				t.Errorf("got %q", got)
			}
			// Close kills the ProxyCommand and all processes that it started.
			began := time.Now()
			if err := client.Close(); err != nil || time.Since(began) > time.Second {
				t.Errorf("close: %v after %v", err, time.Since(began))
			}
		})
	}
}

// fidoAgent is an SSH agent that holds the key of a FIDO token.
type fidoAgent struct {
	agent.Agent
	key ed25519.PrivateKey
}

const fidoType = "sk-ssh-ed25519@openssh.com"

func (a *fidoAgent) public() []byte {
	return gossh.Marshal(struct {
		Type        string
		Key         []byte
		Application string
	}{fidoType, a.key.Public().(ed25519.PublicKey), "ssh:"})
}

func (a *fidoAgent) List() ([]*agent.Key, error) {
	return []*agent.Key{{Format: fidoType, Blob: a.public()}}, nil
}

// Sign returns a signature like that of a token whose user has touched it.
func (a *fidoAgent) Sign(_ gossh.PublicKey, data []byte) (*gossh.Signature, error) {
	application, message := sha256.Sum256([]byte("ssh:")), sha256.Sum256(data)
	end := binary.BigEndian.AppendUint32([]byte{1}, 7) // flag "user present" and the signature counter
	signed := slices.Concat(application[:], end, message[:])
	return &gossh.Signature{Format: fidoType, Blob: ed25519.Sign(a.key, signed), Rest: end}, nil
}

// plx logs in with a FIDO token's key that the SSH agent holds. If the agent
// does not hold it, the error names the key file and the remedy.
func TestTokenKeys(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	fido := &fidoAgent{agent.NewKeyring(), private}
	public, err := gossh.ParsePublicKey(fido.public())
	if err != nil {
		t.Fatal(err)
	}
	authorized := t.TempDir() + "/authorized"
	writeFile(t, authorized, string(gossh.MarshalAuthorizedKey(public)), 0o600)
	server := startSSHD(t, "AuthorizedKeysFile "+authorized)
	home := emptyHome(t, server)
	writeFile(t, home+"/.ssh/id_ed25519_sk", tokenFile(fido), 0o600)
	_, err = ssh.Dial(t.Context(), server.config(home))
	if err == nil || !strings.Contains(err.Error(), "id_ed25519_sk: only the SSH agent can sign with its FIDO token") {
		t.Errorf("without the agent: %v", err)
	}
	if hint := hintOf(err); !strings.Contains(hint, "ssh-add") || !strings.Contains(hint, "--via 'ssh") {
		t.Errorf("hint: %s", hint)
	}
	t.Setenv("SSH_AUTH_SOCK", serveAgent(t, fido))
	dial(t, server.config(home))
}

// tokenFile returns a key file as ssh-keygen writes it for a token, without a
// private key.
func tokenFile(fido *fidoAgent) string {
	private := gossh.Marshal(struct {
		Check1, Check2            uint32
		Type                      string
		Key                       []byte
		Application               string
		Flags                     byte
		Handle, Reserved, Comment string
		Padding                   []byte `ssh:"rest"`
	}{1, 1, fidoType, fido.key.Public().(ed25519.PublicKey), "ssh:", 1, "handle", "", "", nil})
	for i := byte(1); len(private)%8 != 0; i++ {
		private = append(private, i)
	}
	content := gossh.Marshal(struct {
		Cipher, KDF, Options string
		Keys                 uint32
		Public, Private      []byte
	}{"none", "none", "", 1, fido.public(), private})
	return string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: append([]byte("openssh-key-v1\x00"), content...)}))
}

// TestStartUpFilesThatReadOrExec runs commands for users whose shell start-up
// files read stdin or execute another program. The commands work, or the error
// names the cause.
func TestStartUpFilesThatReadOrExec(t *testing.T) {
	needBash(t)
	server := startSSHD(t)
	client := dial(t, server.config(newHome(t, server)))
	for bashrc, works := range map[string]bool{
		"case $- in *i*) ;; *) return ;; esac; no-such-command\n": true,
		"[ -t 0 ] || return\nread -r answer\n":                    true,
		"exec cat\n":                                              false,
		"exec bash\n":                                             false,
	} {
		writeFile(t, filepath.Join(server.home, ".bashrc"), bashrc, 0o600)
		var stdout strings.Builder
		var stdin io.Reader // without stdin, the other program exits immediately
		if works {
			stdin = strings.NewReader("own\n")
		}
		err := client.Run(t.Context(), "cat", stdin, &stdout, nil)
		switch {
		case works && (err != nil || stdout.String() != "own\n"):
			t.Errorf("%q: %q, %v", bashrc, stdout.String(), err)
		case !works && (err == nil || !strings.Contains(err.Error(), "the login shell did not start /bin/sh") || !strings.Contains(hintOf(err), "echo hello must print hello")):
			t.Errorf("%q: %v, hint %q", bashrc, err, hintOf(err))
		}
	}
	// A start-up file that reads stdin gets end-of-file, and never the stdin
	// of the command.
	writeFile(t, filepath.Join(server.home, ".bashrc"), "read -r answer\n", 0o600)
	if got := output(t, client, "echo own"); got != "own\n" {
		t.Errorf("without input: %q", got)
	}
}

// TestForwardAgent checks that the SSH agent is forwarded only if both the
// caller and the ssh configuration ask for it.
func TestForwardAgent(t *testing.T) {
	key := userKey(t)
	const list = "ssh-add -l >/dev/null 2>&1; echo $?"
	for name, c := range map[string]struct {
		config  string // ssh configuration; %s stands for the agent's socket
		forward bool
		server  string
		want    string // exit status of ssh-add -l
		env     bool   // true if SSH_AUTH_SOCK names the agent's socket
	}{
		"yes":                   {"ForwardAgent yes\n", true, "", "0\n", true},
		"a socket":              {"ForwardAgent %s\n", true, "", "0\n", false},
		"IdentityAgent":         {"ForwardAgent yes\nIdentityAgent %s\n", true, "", "0\n", false},
		"no":                    {"ForwardAgent no\n", true, "", "2\n", true},
		"not said":              {"", true, "", "2\n", true},
		"of another host":       {"Host other\nForwardAgent yes\n", true, "", "2\n", true},
		"not asked for":         {"ForwardAgent yes\n", false, "", "2\n", true},
		"no agent":              {"ForwardAgent yes\n", true, "", "2\n", false},
		"refused by the server": {"ForwardAgent yes\n", true, "AllowAgentForwarding no", "2\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			server := startSSHD(t, c.server)
			home, socket := newHome(t, server), startAgent(t, key)
			t.Setenv("SSH_AUTH_SOCK", "")
			if c.env {
				t.Setenv("SSH_AUTH_SOCK", socket)
			}
			sshConfig(t, home, strings.ReplaceAll(c.config, "%s", socket))
			cfg := server.config(home)
			cfg.ForwardAgent = c.forward
			client := dial(t, cfg)
			for range 2 {
				if got := output(t, client, list); got != c.want {
					t.Errorf("ssh-add -l exits with %q, want %q", got, c.want)
				}
			}
		})
	}
}

// TestSendEnv checks that plx sends the variables that the ssh configuration
// names, and that the server decides which ones it sets.
func TestSendEnv(t *testing.T) {
	server := startSSHD(t, "AcceptEnv WANDB_* K3_*")
	t.Setenv("WANDB_API_KEY", "secret of mine")
	t.Setenv("K3_A", "a")
	t.Setenv("K3_B", "it's \"$HOME\"\nb")
	t.Setenv("NOT_ACCEPTED", "x")
	const show = `printf '%s|%s|%s|%s|%s' "$WANDB_API_KEY" "$K3_A" "$K3_B" "$K3_C" "$NOT_ACCEPTED"`
	for name, c := range map[string]struct{ config, want string }{
		"none":                {"", "||||"},
		"one":                 {"SendEnv WANDB_API_KEY\n", "secret of mine||||"},
		"patterns":            {"SendEnv K3_? NOT_*\n", "|a|it's \"$HOME\"\nb||"},
		"several lines":       {"SendEnv WANDB_API_KEY LANG\nSendEnv K3_A\n", "secret of mine|a|||"},
		"one is taken back":   {"SendEnv K3_A WANDB_*\nSendEnv -K3_A\n", "secret of mine||||"},
		"SetEnv":              {"SetEnv K3_C=c\n", "|||c|"},
		"both, the later":     {"SendEnv K3_A\nSetEnv K3_A=set\n", "|set|||"},
		"of another host":     {"Host other\nSendEnv K3_A\n", "||||"},
		"no pattern of ssh's": {"SendEnv K3_[A]\n", "||||"},
	} {
		for _, reader := range []string{"ssh", "plx"} {
			t.Run(name+", read by "+reader, func(t *testing.T) {
				home := newHome(t, server)
				sshConfig(t, home, c.config)
				if reader == "plx" {
					t.Setenv("PATH", t.TempDir()) // no ssh
				}
				if got := output(t, dial(t, server.config(home)), show); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

// TestSlowLoginNamesConnectTimeout checks that the error of a login that takes
// too long suggests ConnectTimeout.
func TestSlowLoginNamesConnectTimeout(t *testing.T) {
	if sshconfig.DefaultTimeout < time.Minute || sshconfig.DefaultConnect >= sshconfig.DefaultTimeout {
		t.Error("a login has too little time")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, but no server replies
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // nothing was written
	home := t.TempDir()
	writeFile(t, home+"/.ssh/id_ed25519", string(userKey(t)), 0o600)
	sshConfig(t, home, "ConnectTimeout 1\n")
	_, err = ssh.Dial(t.Context(), ssh.Config{Host: "127.0.0.1", Port: silent.Addr().(*net.TCPAddr).Port, Home: home})
	if err == nil || !strings.Contains(err.Error(), "no connection within 1s") || !strings.Contains(hintOf(err), "ConnectTimeout") {
		t.Errorf("dial: %v, hint %q", err, hintOf(err))
	}
}
