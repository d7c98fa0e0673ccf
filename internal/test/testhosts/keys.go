package testhosts

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// writeKnown writes lines of known_hosts that list the host's keys under its
// addresses. It ignores empty addresses.
func (d *disk) writeKnown(to *bytes.Buffer, addresses ...string) error {
	var normal []string
	for _, a := range addresses {
		if a != "" {
			normal = append(normal, knownhosts.Normalize(fmt.Sprintf("[%s]:%d", a, sshPort)))
		}
	}
	for _, kind := range d.keyTypes() {
		line, err := os.ReadFile(d.path("ssh/ssh_host_" + kind + "_key.pub"))
		if err != nil {
			return err
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey(line)
		if err != nil {
			return err
		}
		to.WriteString(knownhosts.Line(normal, key) + "\n")
	}
	return nil
}

func (d *disk) keyTypes() []string {
	if types := d.options.HostKeys; len(types) > 0 {
		return types
	}
	return []string{"ed25519"}
}

func (d *disk) writeHostKeys() error {
	for _, kind := range d.keyTypes() {
		if _, err := writeKey(d.path("ssh/ssh_host_"+kind+"_key"), kind); err != nil {
			return err
		}
	}
	return nil
}

// writeKey creates a key pair: the private key in the file path, the public
// key in the file path.pub. It returns the public key as a line of
// authorized_keys.
func writeKey(path, kind string) (string, error) {
	private, err := newKey(kind)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return "", err
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return "", err
	}
	line := string(ssh.MarshalAuthorizedKey(public))
	return line, errors.Join(
		os.WriteFile(path, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(path+".pub", []byte(line), 0o644))
}

func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "ed25519":
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return private, err
	case "ecdsa":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return nil, fmt.Errorf("testhosts: no host keys of type %q", kind)
}

// sshdConfig returns the host's sshd_config. It leaves every limit at
// OpenSSH's default, because most users' servers do so.
func (d *disk) sshdConfig() string {
	sftp := "internal-sftp"
	if d.options.ExternalSFTP {
		sftp = "/usr/lib/openssh/sftp-server"
	}
	lines := []string{
		fmt.Sprintf("Port %d", sshPort),
		"UsePAM no",
		"StrictModes no",
		"PidFile none",
		"UseDNS no",
		"PasswordAuthentication no",
		"KbdInteractiveAuthentication no",
		"PermitRootLogin prohibit-password",
		// The file is outside the home directory, because a test may make that
		// unreadable.
		"AuthorizedKeysFile /etc/ssh/authorized_keys",
		"Subsystem sftp " + sftp,
	}
	for _, kind := range d.keyTypes() {
		lines = append(lines, "HostKey /etc/ssh/ssh_host_"+kind+"_key")
	}
	return strings.Join(lines, "\n") + "\n"
}
