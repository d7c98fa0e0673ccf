package ssh

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
)

// preferred are the algorithms that are asked for when none is on record, and
// after those on record. SHA-1 and DSA are left out.
var preferred = []string{
	gossh.KeyAlgoED25519,
	gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
	gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256,
}

// hostKeys decides on the key of one host.
type hostKeys struct {
	cfg        Config
	files      []string
	address    string   // host:port that known_hosts has it under
	algorithms []string // in the order to ask for
}

func newHostKeys(cfg Config, t target) (*hostKeys, error) {
	k := &hostKeys{cfg: cfg, files: t.knownHosts, address: joinAddress(strings.ToLower(t.hostName), t.port)}
	if t.keyAlias != "" {
		k.address = joinAddress(strings.ToLower(t.keyAlias), 22)
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

// algorithmsFor puts the types on record first, so that a server that prefers
// another type shows the known key. The others follow, so that a key of
// another type is refused as changed and not for want of an algorithm.
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

// check is called with the key that the host shows.
func (k *hostKeys) check(_ string, remote net.Addr, key gossh.PublicKey) error {
	if k.cfg.HostKey != nil {
		if sameKey(k.cfg.HostKey, key) {
			return nil
		}
		return k.refuse(key, []string{"the given key"})
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

// judge compares the key with the record.
func (k *hostKeys) judge(db *knownDB, remote net.Addr, key gossh.PublicKey) error {
	err := db.HostKeyCallback()(k.address, remote, key)
	var revoked *xknownhosts.RevokedError
	var differs *xknownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		refusal := k.refuse(key, []string{db.place(revoked.Revoked)})
		refusal.Revoked = true
		return refusal
	case errors.As(err, &differs):
		return k.refuse(key, k.recorded(db, differs.Want))
	}
	return err
}

// recorded lists the keys on record but those of certificate authorities: a
// plain key does not contradict them.
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

func (k *hostKeys) refuse(key gossh.PublicKey, recorded []string) *HostKeyError {
	refusal := &HostKeyError{
		Host: k.cfg.Host, Address: knownhosts.Normalize(k.address),
		KeyType: key.Type(), Fingerprint: gossh.FingerprintSHA256(key), Recorded: recorded,
	}
	if host, port, err := net.SplitHostPort(k.address); err == nil && len(k.files) > 0 {
		refusal.scan = fmt.Sprintf("ssh-keyscan -p %s %s >> %s", port, Quote(host), Quote(k.files[0]))
	}
	return refusal
}
