package ssh

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
	"github.com/plx-run/plx/launcher/transport"
)

// offer holds the user's keys to offer to a host, in order, and reports the
// keys that cannot be used.
type offer struct {
	keys      []gossh.Signer
	sources   []string // file of each entry of keys, or "agent"; same order as keys
	problems  []string // keys that cannot be used and why, each as one line
	encrypted []string // key files that need a passphrase and are not loaded in the SSH agent
	tokens    []string // key files of FIDO tokens that are not loaded in the SSH agent
	certs     []*certificate
	allowed   []string // authentication methods that the server last allowed; nil before its first reply
	canPrompt bool     // true if plx can prompt the user, for example for a password
	agent     net.Conn // connection to the SSH agent; must stay open until the agent's keys have signed; nil: no agent
}

// newOffer collects the keys: first those that the ssh configuration names,
// then the SSH agent's, then the default files such as id_ed25519. The order
// matters, since a server closes the connection after about six keys.
func newOffer(ctx context.Context, cfg Config, t sshconfig.Target) *offer {
	o := &offer{canPrompt: len(promptMethods(ctx, cfg, t)) > 0}
	if len(cfg.Signers) > 0 {
		for _, key := range cfg.Signers {
			o.add(key, "given key")
		}
		return o
	}
	agentKeys := o.agentSigners(ctx, t.Agent)
	o.readCertificates(t)
	for _, path := range t.Identities {
		o.addFile(path, agentKeys, true)
	}
	for _, key := range agentKeys {
		if !t.IdentitiesOnly || o.hasCertificate(key) {
			o.add(key, "agent")
		}
	}
	for _, path := range t.Defaults {
		o.addFile(path, agentKeys, false)
	}
	o.checkCertificates()
	return o
}

var errNoKey = errors.New("there is no key to log in with")

// certificate is an OpenSSH user certificate. Its private key may be in a file
// or in the SSH agent.
type certificate struct {
	*gossh.Certificate
	path string
	used bool // true once the private key of the certificate was found
}

func (o *offer) close() {
	if o.agent != nil {
		_ = o.agent.Close() // the signatures are made, so an error of Close loses nothing
	}
}

// add appends key to the offered keys, preceded by the certificates issued for
// it. A key that is already in the list is not added again.
func (o *offer) add(key gossh.Signer, source string) {
	for _, c := range o.certs {
		if !c.used && sameKey(c.Key, key.PublicKey()) {
			c.used = true
			// NewCertSigner fails if the certificate is for another key.
			if signer, err := gossh.NewCertSigner(c.Certificate, key); err == nil {
				o.add(signer, c.path)
			}
		}
	}
	for _, other := range o.keys {
		if sameKey(other.PublicKey(), key.PublicKey()) {
			return
		}
	}
	o.keys = append(o.keys, key)
	o.sources = append(o.sources, source)
}

func sameKey(a, b gossh.PublicKey) bool { return bytes.Equal(a.Marshal(), b.Marshal()) }

// agentSigners returns the keys of the SSH agent. It closes the connection
// when ctx ends, because the agent may wait long for its user to confirm.
func (o *offer) agentSigners(ctx context.Context, socket string) []gossh.Signer {
	if socket == "" {
		return nil
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		o.problems = append(o.problems, fmt.Sprintf("agent: %v", err))
		return nil
	}
	o.agent = conn
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // end the wait when ctx ends: the SSH agent may wait for its user to confirm
	keys, err := agent.NewClient(conn).Signers()
	if err != nil {
		o.problems = append(o.problems, fmt.Sprintf("agent: %v", err))
	}
	return keys
}

// addFile offers the key in the file path, or the SSH agent's copy of the key
// if the file cannot be used. A missing file is reported only if asked is
// true, which means that the ssh configuration names the file.
func (o *offer) addFile(path string, agentKeys []gossh.Signer, asked bool) {
	data, err := os.ReadFile(path)
	if err != nil && !asked && errors.Is(err, os.ErrNotExist) {
		return
	}
	var key gossh.Signer
	if err == nil {
		key, err = gossh.ParsePrivateKey(data)
	}
	if err != nil {
		o.addByAgent(path, agentKeys, err)
		return
	}
	o.add(key, path)
}

// addByAgent offers the SSH agent's copy of a key whose file cannot be used
// because of cause. It finds the copy by the public key, which it reads from
// the key file or from FILE.pub.
func (o *offer) addByAgent(path string, agentKeys []gossh.Signer, cause error) {
	var locked *gossh.PassphraseMissingError
	isLocked := errors.As(cause, &locked)
	public := readPublic(path + ".pub")
	if isLocked && locked.PublicKey != nil {
		public = locked.PublicKey
	}
	if public == nil { // The file may itself be a public key file: IdentityFile may name one.
		public = readPublic(path)
	}
	for _, key := range agentKeys {
		if public != nil && sameKey(key.PublicKey(), public) {
			o.add(key, path+" by the agent")
			return
		}
	}
	if isToken(public, cause) {
		o.tokens = append(o.tokens, path)
		cause = errors.New("only the SSH agent can sign with its FIDO token, and the agent does not have the key")
	}
	if isLocked {
		o.encrypted = append(o.encrypted, path)
		cause = errors.New("has a passphrase and is not in the agent")
	}
	o.problems = append(o.problems, fmt.Sprintf("%s: %v", path, cause))
}

// isToken reports whether a key belongs to a FIDO token.
// golang.org/x/crypto/ssh cannot read the key files of tokens.
func isToken(public gossh.PublicKey, cause error) bool {
	return public != nil && strings.HasPrefix(public.Type(), "sk-") || strings.Contains(cause.Error(), "unhandled key type")
}

func readPublic(path string) gossh.PublicKey {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil // no FILE.pub: the public key file is optional
	}
	key, _, _, _, err := gossh.ParseAuthorizedKey(data)
	if err != nil {
		return nil // the file contains no public key
	}
	return key
}

// readCertificates reads the certificates that CertificateFile names. Then it
// reads those that lie beside key files as KEY-cert.pub. ssh offers
// certificates in the same order.
func (o *offer) readCertificates(t sshconfig.Target) {
	read := func(path string) bool {
		cert, is := readPublic(path).(*gossh.Certificate)
		if is {
			o.certs = append(o.certs, &certificate{Certificate: cert, path: path})
		}
		return is
	}
	for _, path := range t.Certificates {
		if !read(path) {
			o.problems = append(o.problems, path+": there is no certificate in it")
		}
	}
	for _, path := range slices.Concat(t.Identities, t.Defaults) {
		read(path + "-cert.pub")
	}
}

// hasCertificate reports whether one of the user's certificates is for this key.
func (o *offer) hasCertificate(key gossh.Signer) bool {
	return slices.ContainsFunc(o.certs, func(c *certificate) bool { return sameKey(c.Key, key.PublicKey()) })
}

// checkCertificates adds a problem for each certificate that has expired, is
// not valid yet, or lacks its private key.
func (o *offer) checkCertificates() {
	for _, c := range o.certs {
		const layout = "2006-01-02 15:04"
		now := uint64(time.Now().Unix())
		switch {
		case !c.used:
			o.problems = append(o.problems, c.path+": its key is neither in a file nor in the agent")
		case c.ValidBefore != gossh.CertTimeInfinity && now >= c.ValidBefore:
			o.problems = append(o.problems, c.path+": it expired on "+time.Unix(int64(c.ValidBefore), 0).Format(layout))
		case now < c.ValidAfter:
			o.problems = append(o.problems, c.path+": it is valid from "+time.Unix(int64(c.ValidAfter), 0).Format(layout))
		}
	}
}

// explain completes the error of a refused login: it lists the keys that plx
// offered and those that plx could not use. It returns other errors unchanged,
// such as those of a failed handshake.
func (o *offer) explain(err error) error {
	text := err.Error()
	if !strings.Contains(text, "unable to authenticate") && !strings.Contains(text, "oo many authentication failures") {
		return err
	}
	if len(o.keys) == 0 && !o.canPrompt {
		err = errNoKey
	}
	tried := "no key"
	if len(o.sources) > 0 {
		tried = strings.Join(o.sources, ", ")
	}
	err = &loginError{fmt.Errorf("login refused: %w; offered: %s", err, tried)}
	if len(o.allowed) > 0 {
		err = fmt.Errorf("%w; the server accepts: %s", err, strings.Join(o.allowed, ", "))
	}
	if len(o.problems) > 0 {
		err = fmt.Errorf("%w; not usable: %s", err, strings.Join(o.problems, "; "))
	}
	return exit.WithHint(err, o.hint())
}

func (o *offer) hint() string {
	if len(o.encrypted) > 0 {
		return "unlock the key first: ssh-add " + Quote(o.encrypted[0])
	}
	if len(o.tokens) > 0 {
		return "add the key to the SSH agent: ssh-add " + Quote(o.tokens[0]) + "; or let ssh log in: " + viaSSH
	}
	if len(o.keys) > 5 {
		return "a server accepts about 6 keys: name the right one with IdentityFile in the ssh configuration"
	}
	hint := "plx logs in by key: put your public key into the host's ~/.ssh/authorized_keys (ssh-copy-id)"
	if len(o.allowed) > 0 && !slices.Contains(o.allowed, "publickey") {
		hint = "the server does not accept a key alone: on a terminal plx prompts for what else it requires"
		if o.canPrompt {
			hint = "the server does not accept a key alone, and it refused the answers to its prompts"
		}
	}
	if slices.Contains(o.allowed, "gssapi-with-mic") {
		hint += "; plx cannot log in by Kerberos (GSSAPI), as this host may want: let ssh do it, " + viaSSH
	}
	return hint
}

// GenerateKey generates a key pair for an SSH connection in which plx is both
// the client and the server.
func GenerateKey() (gossh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return gossh.NewSignerFromKey(private)
}

// loginError reports that the host refused all the user's keys and passwords.
type loginError struct{ error }

func (e *loginError) Unwrap() error { return e.error }

// RefusedBy implements an interface of transport.RefusedBy. It returns which
// check refused the connection, and what the user can do.
func (e *loginError) RefusedBy() (check, cure string) {
	return transport.Login, "put your public key into the host's ~/.ssh/authorized_keys (ssh-copy-id)"
}
