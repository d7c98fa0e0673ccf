package ssh

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/plx-run/plx/launcher/ssh/sshconfig"
	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// preferred are the algorithms to request after those of the keys on record. SHA-1 and
// DSA are left out.
var preferred = []string{
	gossh.KeyAlgoED25519,
	gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
	gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256,
}

// hostKeys decides on the key of one host.
type hostKeys struct {
	cfg        Config
	files      []string
	address    string   // host:port of its entry in known_hosts
	algorithms []string // to request, in this order
}

func newHostKeys(cfg Config, t sshconfig.Target) (*hostKeys, error) {
	k := &hostKeys{cfg: cfg, files: t.KnownHosts, address: joinAddress(strings.ToLower(t.HostName), t.Port)}
	if t.KeyAlias != "" {
		k.address = joinAddress(strings.ToLower(t.KeyAlias), 22)
	}
	if cfg.HostKey != nil {
		return k, nil
	}
	db, err := openKnown(k.files)
	if err != nil {
		return nil, err
	}
	k.algorithms = algorithmsFor(db, k.address)
	return k, nil
}

// algorithmsFor puts the types on record first, so that the server shows the known key.
// The others follow, so that a key of another type is refused as changed, and not for
// lack of an algorithm.
func algorithmsFor(db *knownDB, address string) []string {
	var algorithms []string
	for _, name := range db.HostKeyAlgorithms(address) {
		if name != gossh.KeyAlgoRSA && name != "ssh-dss" && name != gossh.CertAlgoRSAv01 && name != "" {
			algorithms = append(algorithms, name)
		}
	}
	for _, name := range preferred {
		if !slices.Contains(algorithms, name) {
			algorithms = append(algorithms, name)
		}
	}
	return algorithms
}

// check accepts or refuses the key that the host shows.
func (k *hostKeys) check(_ string, remote net.Addr, key gossh.PublicKey) error {
	if k.cfg.HostKey != nil {
		if sameKey(k.cfg.HostKey, key) {
			return nil
		}
		return k.refuse(key, []string{"the given key"}, false)
	}
	db, err := openKnown(k.files)
	if err != nil {
		return err
	}
	err = k.judge(db, remote, key)
	var refusal *HostKeyError
	if errors.As(err, &refusal) && !refusal.Changed() && k.cfg.AcceptNewHostKeys {
		return k.record(remote, key)
	}
	return err
}

// judge compares the key with the keys on record.
func (k *hostKeys) judge(db *knownDB, remote net.Addr, key gossh.PublicKey) error {
	err := db.HostKeyCallback()(k.address, remote, key)
	var revoked *xknownhosts.RevokedError
	var differs *xknownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return k.refuse(key, []string{db.place(revoked.Revoked)}, true)
	case errors.As(err, &differs):
		return k.refuse(key, k.recorded(db, differs.Want), false)
	}
	return err
}

// recorded lists the keys on record, except those of certificate authorities: a plain key
// does not contradict them.
func (k *hostKeys) recorded(db *knownDB, want []xknownhosts.KnownKey) []string {
	var places []string
	known := db.HostKeys(k.address)
	for _, one := range want {
		authority := slices.ContainsFunc(known, func(key knownhosts.PublicKey) bool {
			return key.Cert && sameKey(key, one.Key)
		})
		if !authority {
			places = append(places, db.place(one))
		}
	}
	return places
}

func (k *hostKeys) refuse(key gossh.PublicKey, recorded []string, revoked bool) *HostKeyError {
	refusal := &HostKeyError{
		Host: k.cfg.Host, Address: knownhosts.Normalize(k.address),
		KeyType: key.Type(), Fingerprint: gossh.FingerprintSHA256(key), Recorded: recorded, Revoked: revoked,
	}
	if host, port, err := net.SplitHostPort(k.address); err == nil && len(k.files) > 0 {
		refusal.scan = fmt.Sprintf("ssh-keyscan -p %s %s >> %s", port, Quote(host), Quote(k.files[0]))
	}
	return refusal
}
