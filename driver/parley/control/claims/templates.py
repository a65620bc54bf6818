"""Keeps a built-in template of the same name for each Parley template, from which Kubernetes generates claims."""

from parley.api import reasons
from parley.api.builtin import BuiltinTemplate
from parley.api.models import ResourceClaimTemplate
from parley.api.names import API_VERSION
from parley.api.resources import BUILTIN_TEMPLATES, TEMPLATES
from parley.control.caches.cluster import ClusterCache
from parley.control.claims.messages import refused, taken
from parley.control.claims.mirrored import MadeMirrors
from parley.control.objects.class_request import parameters_too_large
from parley.control.objects.mirror import is_template_mirror, owned_by, template_mirror
from parley.control.publishing.events import Recorder
from parley.kube.cache import Key
from parley.kube.client import REFUSALS, AlreadyExists, Client, NotFound


class TemplateReconciler:
    """Reconciles templates' mirrors. A mirror is owned by its template, and recreated if somebody deletes it."""

    def __init__(self, client: Client, cluster: ClusterCache, recorder: Recorder) -> None:
        self._client = client
        self._cluster = cluster
        self._recorder = recorder
        self._mirrors = MadeMirrors(client, TEMPLATES)

    async def sync(self, key: Key) -> None:
        """Create the mirror of the template of that name if it is missing."""
        template = self._cluster.template(key)
        mirror = self._cluster.template_mirror(key)
        if template is None or mirror is not None:
            self._cluster.refusals.clear("ResourceClaimTemplate", key)
        if template is None:
            self._mirrors.forget(key)
            if mirror is not None and is_template_mirror(mirror) and not mirror.metadata.owner_references:
                await self._delete(mirror)  # the template was deleted with `--cascade=orphan`
        if template is None or template.metadata.deletion_timestamp:
            return
        if mirror is None and not parameters_too_large(template.spec.spec):
            await self._create(key, template)
        elif mirror is not None and not owned_by(mirror, template.metadata.uid):
            await self._replace(template, mirror)

    async def _create(self, key: Key, template: ResourceClaimTemplate) -> None:
        if await self._mirrors.is_gone(template):
            return  # the event of its deletion requeues it
        self._mirrors.note_created(template)
        try:
            await self._client.create(BUILTIN_TEMPLATES, template_mirror(template), key[0])
        except AlreadyExists:
            pass  # not in the cache yet; its event requeues the template
        except REFUSALS as error:
            self._cluster.mirror_refused(template, error.message)
            note = refused("ResourceClaimTemplate", *key, error.message)
            await self._warn(template, reasons.WRITE_REFUSED, note)
            raise  # it is tried again, after a growing pause

    async def _replace(self, template: ResourceClaimTemplate, mirror: BuiltinTemplate) -> None:
        """Delete the mirror of an earlier template of that name; an object that is not Parley's is reported."""
        meta = template.metadata
        if is_template_mirror(mirror):
            await self._delete(mirror)
            return
        note = taken("ResourceClaimTemplate", meta.namespace, meta.name)
        await self._warn(template, reasons.NAME_TAKEN, note)

    async def _delete(self, mirror: BuiltinTemplate) -> None:
        meta = mirror.metadata
        try:
            await self._client.delete(BUILTIN_TEMPLATES, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass  # gone already

    async def _warn(self, template: ResourceClaimTemplate, code: str, note: str) -> None:
        meta = template.metadata
        await self._recorder.warn(
            "ResourceClaimTemplate", API_VERSION, meta.namespace, meta.name, meta.uid, code, note
        )
