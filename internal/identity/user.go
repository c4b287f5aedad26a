package identity

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/enforce"
)

// Accounts returns the users and groups that the resolver asks.
func (r *Resolver) Accounts() *account.Directory { return r.accounts }

// user takes a name, or the uid of a user who may have no name.
func (r *Resolver) user(ctx context.Context, id string) (Resolved, error) {
	uid, err := r.accounts.UID(ctx, id)
	if err != nil {
		return Resolved{}, noAccount("user", "passwd", id, err, "getent passwd shows names and uids; a uid is understood too: --user UID")
	}
	u, err := r.accounts.UserOf(ctx, uid)
	if err != nil { // it has no name, or none that is told now
		u.Name = strconv.FormatUint(uint64(uid), 10)
	}
	return userNamed(uid, u.Name), nil
}

// noAccount tells an account that does not exist from one that the name service tells nothing of. Both are "not
// found": a limit that stands on it is found by its name.
func noAccount(kind, database, name string, err error, hint string) error {
	e := &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no %s is called %q", kind, name), Hint: hint, Cause: errors.Join(ErrNotFound, err)}
	if !errors.Is(err, account.ErrUnknown) {
		e.Code, e.Message = api.CodeInternal, fmt.Sprintf("the %s %q cannot be looked up: %v", kind, name, err)
		e.Hint = fmt.Sprintf("time getent %s %s  asks the same", database, name)
	}
	return e
}

// User returns the subject of all processes of a uid. It never waits: a name that the files do not have is known the
// next time.
func User(uid uint32) Resolved { return userNamed(uid, UserName(uid)) }

func userNamed(uid uint32, name string) Resolved {
	return Resolved{
		Subject: api.Subject{Kind: api.KindUser, ID: name},
		Kind:    enforce.KindUser,
		Key:     uint64(uid),
		UID:     uid,
		Name:    name,
	}
}

// UserName returns the name of a uid, or the number where it has none. It never waits, as User.
func UserName(uid uint32) string {
	if u, ok := account.Machine().Known(uid); ok {
		return u.Name
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// Group finds a group's id by its name, or by its number.
func (r *Resolver) Group(ctx context.Context, name string) (uint32, error) {
	gid, err := r.accounts.GID(ctx, name)
	if err != nil {
		return 0, noAccount("group", "group", name, err, "getent group")
	}
	return gid, nil
}
