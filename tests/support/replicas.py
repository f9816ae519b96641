"""Reads on a standby, in tests that say nothing about them (``pytest --server replicas``)."""

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.options.collection import ServerOptions


def has_standby(url):
    """Whether an address names a standby beside the primary."""
    return url is not None and "," in str(conninfo_to_dict(url).get("host"))


def read_from_replicas():
    """Lets every client of this process read on the standby of its address, if it has one."""
    made = ServerOptions.__init__

    def with_default(self, db_url=None, **options):
        if db_url is not None and has_standby(db_url):
            options["read_from"] = "replica"  # whatever the settings of a command say
            # Whatever takes the first host for the primary fails. Commands get the address as it is.
            parts = conninfo_to_dict(db_url)
            hosts = {name: ",".join(reversed(str(parts[name]).split(","))) for name in ("host", "port")}
            db_url = make_conninfo(db_url, **hosts)
        made(self, db_url, **options)

    ServerOptions.__init__ = with_default
