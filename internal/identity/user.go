package identity

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// resolveUser takes a name, or the uid of a user who may have no name.
func resolveUser(id string) (Resolved, error) {
	u, err := user.Lookup(id)
	if err == nil {
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return Resolved{}, fmt.Errorf("user %q has the uid %q: %w", id, u.Uid, err)
		}
		return User(uint32(uid)), nil
	}
	var unknown user.UnknownUserError
	if !errors.As(err, &unknown) {
		return Resolved{}, fmt.Errorf("look up user %q: %w", id, err)
	}
	uid, err := strconv.ParseUint(id, 10, 32)
	const noUID = 1<<32 - 1 // (uid_t)-1 means "no user" to the kernel
	if err != nil || uid == noUID {
		return Resolved{}, notFound(fmt.Sprintf("no user is called %q", id), "getent passwd shows names and uids; a uid is understood too: --user UID")
	}
	return User(uint32(uid)), nil
}

// User returns the subject of all processes of a uid.
func User(uid uint32) Resolved {
	name := UserName(uid)
	return Resolved{
		Subject: api.Subject{Kind: api.KindUser, ID: name},
		Kind:    enforce.KindUser,
		Key:     uint64(uid),
		UID:     uid,
		Name:    name,
	}
}

// UserName returns the name of a uid, or the number where it has none.
func UserName(uid uint32) string {
	text := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(text); err == nil {
		return u.Username
	}
	return text
}

// Group finds a group's id by its name, or by its number.
func Group(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err == nil {
		name = g.Gid
	}
	gid, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return 0, notFound(fmt.Sprintf("no group is called %q", name), "getent group")
	}
	return uint32(gid), nil
}
