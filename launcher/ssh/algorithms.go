package ssh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/exit"
)

// viaSSH is the option that hints suggest if plx's own SSH client cannot log in
// to a host: plx then connects through the ssh program.
const viaSSH = "--via 'ssh -o BatchMode=yes {host}'"

// algorithms returns every algorithm that golang.org/x/crypto/ssh implements,
// the secure ones first. The insecure ones let plx reach old servers that
// support nothing better.
func algorithms() gossh.Config {
	secure, weak := gossh.SupportedAlgorithms(), gossh.InsecureAlgorithms()
	return gossh.Config{
		KeyExchanges: slices.Concat(secure.KeyExchanges, weak.KeyExchanges),
		Ciphers:      slices.Concat(secure.Ciphers, weak.Ciphers),
		MACs:         slices.Concat(secure.MACs, weak.MACs),
	}
}

// weakAlgorithms returns the negotiated algorithms of conn that have known security
// issues.
func weakAlgorithms(conn gossh.Conn) (found []string) {
	meta, is := conn.(gossh.AlgorithmsConnMetadata)
	if !is {
		return nil
	}
	got, weak := meta.Algorithms(), gossh.InsecureAlgorithms()
	all := slices.Concat(weak.KeyExchanges, weak.Ciphers, weak.MACs, weak.HostKeys)
	for _, name := range []string{got.KeyExchange, got.HostKey, got.Read.Cipher, got.Write.Cipher, got.Read.MAC, got.Write.MAC} {
		if slices.Contains(all, name) && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// keywords maps the subject of a failed algorithm negotiation, as
// golang.org/x/crypto/ssh names it, to the sshd_config keyword that configures
// it. cure is an algorithm that the administrator of the server can add there;
// old servers support it too.
var keywords = []struct{ subject, keyword, cure string }{
	{"key exchange", "KexAlgorithms", "curve25519-sha256"}, {"host key", "HostKeyAlgorithms", "ssh-ed25519"},
	{"cipher", "Ciphers", "aes256-ctr"}, {"MAC", "MACs", "hmac-sha2-256"},
}

// explainAlgorithms rewrites a failed algorithm negotiation: the new error
// lists the algorithms that the server offered, and its hint names the
// sshd_config keyword to change. It returns other errors as they are.
func explainAlgorithms(err error) error {
	var none *gossh.AlgorithmNegotiationError
	if !errors.As(err, &none) || len(none.SupportedAlgorithms) == 0 {
		return err
	}
	offered := slices.DeleteFunc(slices.Clone(none.RequestedAlgorithms), func(name string) bool {
		// Names with these prefixes are protocol extensions, which a server
		// lists among its algorithms.
		return strings.HasPrefix(name, "kex-strict-") || strings.HasPrefix(name, "ext-info-")
	})
	err = fmt.Errorf("its SSH server offers no %s that plx implements: %s", none.What, strings.Join(offered, ", "))
	for _, k := range keywords {
		if strings.Contains(none.What, k.subject) {
			err = exit.WithHint(err, fmt.Sprintf("add %s to %s in the host's sshd_config, or let ssh connect: %s", k.cure, k.keyword, viaSSH))
		}
	}
	return err
}
