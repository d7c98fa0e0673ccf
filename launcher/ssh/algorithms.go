package ssh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/launcher/exit"
)

// bySSH is the way out where plx cannot speak as ssh does.
const bySSH = "--via 'ssh -o BatchMode=yes {host}'"

// algorithms returns all that the library implements, the secure ones first: a server that
// knows none of them is still reached, as the user's ssh may be told to reach it.
func algorithms() gossh.Config {
	secure, weak := gossh.SupportedAlgorithms(), gossh.InsecureAlgorithms()
	return gossh.Config{
		KeyExchanges: slices.Concat(secure.KeyExchanges, weak.KeyExchanges),
		Ciphers:      slices.Concat(secure.Ciphers, weak.Ciphers),
		MACs:         slices.Concat(secure.MACs, weak.MACs),
	}
}

// weakOf returns those of the algorithms of a connection that have security issues.
func weakOf(conn gossh.Conn) (found []string) {
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

// keywords are those of sshd_config, by what the library calls their subject, each with an
// algorithm that old servers know too.
var keywords = []struct{ subject, keyword, cure string }{
	{"key exchange", "KexAlgorithms", "curve25519-sha256"}, {"host key", "HostKeyAlgorithms", "ssh-ed25519"},
	{"cipher", "Ciphers", "aes256-ctr"}, {"MAC", "MACs", "hmac-sha2-256"},
}

// explainAlgorithms says what a server wants with which the library has nothing in common.
func explainAlgorithms(err error) error {
	var none *gossh.AlgorithmNegotiationError
	if !errors.As(err, &none) || len(none.SupportedAlgorithms) == 0 {
		return err
	}
	offered := slices.DeleteFunc(slices.Clone(none.RequestedAlgorithms), func(name string) bool {
		return strings.HasPrefix(name, "kex-strict-") || strings.HasPrefix(name, "ext-info-") // these are no algorithms
	})
	err = fmt.Errorf("its SSH server offers nothing for the %s that plx implements: %s", none.What, strings.Join(offered, ", "))
	for _, k := range keywords {
		if strings.Contains(none.What, k.subject) {
			err = exit.WithHint(err, fmt.Sprintf("add %s to %s in the host's sshd_config, or let ssh connect: %s", k.cure, k.keyword, bySSH))
		}
	}
	return err
}
