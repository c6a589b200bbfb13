package engines

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Labels that the containers of a session carry.
const (
	LabelID    = "sessionbox"       // the session's id: for people, and to find them
	LabelToken = "sessionbox.token" // proves that the session made it
	LabelBy    = "sessionbox.by"    // who asked for it, for people
)

// Proof makes and checks the tokens of one session. Its id can be guessed and is shown
// everywhere; its cookie is random, and known to who may read the environment of its
// processes, or of the units and jobs that they have others start.
type Proof struct{ Cookie string }

// NewToken is the token of one call: random, and signed.
func (p Proof) NewToken() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	nonce := hex.EncodeToString(b[:])
	return nonce + "." + p.sign(nonce)
}

// TokenFor is the token of all calls for one purpose, always the same.
func (p Proof) TokenFor(purpose string) string {
	h := hmac.New(sha256.New, []byte(p.Cookie))
	h.Write([]byte("purpose\x00" + purpose))
	nonce := hex.EncodeToString(h.Sum(nil)[:8])
	return nonce + "." + p.sign(nonce)
}

// Made says whether the session made a token.
func (p Proof) Made(token string) bool {
	nonce, mac, ok := strings.Cut(token, ".")
	return ok && p.Cookie != "" && hmac.Equal([]byte(mac), []byte(p.sign(nonce)))
}

func (p Proof) sign(nonce string) string {
	h := hmac.New(sha256.New, []byte(p.Cookie))
	h.Write([]byte("container\x00" + nonce))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Nonce is the part of a token that names a file.
func Nonce(token string) string {
	nonce, _, _ := strings.Cut(token, ".")
	return nonce
}
